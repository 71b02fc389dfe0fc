# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench report`: files of benches become pages, pictures, and smaller files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fair import Optimum, goodput_optimum
from ri2n_lab.bench.report import make_report, write_report
from ri2n_lab.bench.report_input import load_measurement
from ri2n_lab.bench.rows import fig4_row
from ri2n_sdn.fabric.topology import Topology, load_topology

pytestmark = pytest.mark.usefixtures("drawn_once")

REPOSITORY = Path(__file__).parents[2]
REASON = "hosts with one and with two links | cannot be bonded"
Json = dict[str, Any]


def topology(name: str) -> Topology:
    return load_topology(REPOSITORY / "topologies" / "fig4" / f"{name}.yaml")


def fig4(
    path: Path, *, shares: tuple[float, ...] = (0.5, 0.9, 0.7), streams: tuple[int, ...] = (1, 8)
) -> Path:
    """`max_min`, `round_robin` and two peers on b and d, a run per share; one peer cannot do d."""
    names = ("b", "d")
    settings: Json = {
        "topologies": [topology(name).model_dump(mode="json") for name in names],
        "strategies": ["max_min", "round_robin"],
        "peers": ["mptcp", "lcb"],
        **{
            "mode": "flow",
            "streams": list(streams),
            "seconds": 10,
            "warmup": 3,
            "repeat": len(shares),
        },
        **{"pattern": "bulk", "clients": []},
    }
    report = Report("fig4", None, settings)
    for name in names:
        clients = [host for host in topology(name).managed_hosts() if host != "A"]
        optimum = goodput_optimum(topology(name), clients, "A")
        for strategy in ("mptcp", "lcb", "max_min", "round_robin"):
            peer = strategy in ("mptcp", "lcb")
            for count in streams:
                key = {
                    "topology": name,
                    "strategy": strategy,
                    "peer": peer,
                    "mode": "flow",
                    "streams": count,
                }
                if (name, strategy) == ("d", "lcb"):
                    report.add(cannot(key), {}, [])
                    continue
                for repeat, share in enumerate(shares, start=1):
                    report.add(
                        measured({**key, "repeat": repeat}, optimum, share, peer),
                        {"iperf3": "bulky"},
                        [],
                    )
    report.document["context"]["labs"] = {
        name: {
            "datapath": "netdev",
            "congestion_control": "cubic",
            "qdiscs": {
                "sw": [
                    "qdisc noqueue 0: dev lo root refcnt 2 ",
                    "qdisc tbf 1: dev A-eth0 root refcnt 3 rate 100Mbit ",
                ],
                "A": ["qdisc netem 8001: dev eth0 root refcnt 3 limit 1000 delay 5us rate 100Mbit"],
            },
            "offloads": [
                "Features for eth0:",
                "rx-checksumming: off",
                "\ttx-checksum-ipv4: off [fixed]",
            ],
            "seed": None,
        }
        for name in names
    }
    return save(report, path)


def save(report: Report, path: Path) -> Path:
    """As the bench leaves it on disk, but written once and not with every row."""
    report.finish()
    path.write_text(json.dumps(report.document, indent=1) + "\n")
    return path


def cannot(key: Json) -> Json:
    nothing = {
        "total_of_optimum": None,
        "worst_share": None,
        "retransmits": None,
        "slots_moved": None,
    }
    return {**key, "repeat": 0, "why_not": REASON, "clients": {}, "weights": {}, **nothing}


def measured(key: Json, optimum: Optimum, share: float, peer: bool) -> Json:
    goodput = {client: rate * share for client, rate in optimum.fair_bps.items()}
    weights = {} if peer else {client: {"eth0>eth0": 0.25, "eth1>eth1": 0.75} for client in goodput}
    return fig4_row(key, goodput, optimum, retransmitted=7, weights=weights, slots_moved=3)


def failover(path: Path) -> Path:
    report = Report(
        "failover",
        None,
        {"topology": topology("b").model_dump(mode="json"), "strategies": ["max_min"]},
    )
    for fault, outage_ms in (("switch_down", 400.0), ("nic_down", 0.0)):
        for strategy, peer, factor in (("max_min", False, 1.0), ("lcb", True, 10.0)):
            for repeat in (1, 2):
                figures = {
                    "outage_ms": outage_ms * factor,
                    "lost": 4,
                    "sent": 6000,
                    "tcp_stall_ms": 210.5 * repeat,
                }
                key = {
                    "fault": fault,
                    "strategy": strategy,
                    "peer": peer,
                    "mode": "flow",
                    "repeat": repeat,
                }
                report.add({**key, **figures, "path": "-"}, {}, [])
    return save(report, path)


def failover_without_udp(path: Path) -> Path:
    """A report like `failover`'s, whose peer carries no UDP."""
    failover(path)
    document = json.loads(path.read_text())
    for row in document["rows"]:
        if row["peer"]:
            row |= {"strategy": "mptcp", "outage_ms": None, "lost": None, "sent": None}
    path.write_text(json.dumps(document))
    return path


def fig9(path: Path) -> Path:
    """Two phases of ten samples; in the second, C's weights change at its sixth."""
    settings = {
        "topology": topology("e").model_dump(mode="json"),
        "strategy": "max_min",
        "streams": 8,
        "phase_s": 1,
    }
    report = Report("fig9", None, settings)
    for number, phase in enumerate(("e: all links", "f: B lost link 1")):
        began_s = 5000.123 + number
        samples = []
        for index in range(10):
            share = 0.75 if number and index >= 5 else 0.5
            weights = {"C": {"eth0>eth0": 1 - share, "eth1>eth1": share}}
            samples.append({"time_s": began_s + index / 10, "hbspan_s": 0.25, "weights": weights})
        row: Json = {
            "phase": phase,
            "settle_s": 0.5 if number else None,
            "settle_hbspan": 2.0 if number else None,
        }
        row |= {
            "hbspan_s": 0.25,
            "weights": samples[-1]["weights"],
            "goodput_bps": {"C": 95_000_000},
        }
        report.add(row, {"phase": phase, "began_s": began_s, "samples": samples}, [])
    return save(report, path)


def cycle(path: Path) -> Path:
    report = Report("cycle", None, {"hosts": 32, "pairs": [31], "seconds": 10.0})
    row = {
        "hosts": 32,
        "active_pairs": 31,
        "rounds": 20,
        "cycle_s": 0.051,
        "cycle_max_s": 0.09,
        "cpu_s": 0.02,
    }
    report.add({**row, "changed_tables": 31, "change_cycle_s": 0.11, "change_cpu_s": 0.07}, [], [])
    return save(report, path)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """One file of every kind, fig4's from a guest with virtual time."""
    made = [fig4(tmp_path / "fig4-virtual.json"), failover(tmp_path / "failover_host.json")]
    made += [fig9(tmp_path / "fig9.json"), cycle(tmp_path / "Cycle of today.json")]
    document = json.loads(made[0].read_text())
    document["command"] = (
        f"ri2n bench fig4 --kernel virtual --topologies {tmp_path}/b.yaml --json {tmp_path}/x.json"
    )
    document["settings"]["json_file"] = f"{tmp_path}/x.json"
    document["context"] |= {
        "lab_kernel": "virtual",
        "guest_s": 900.5,
        "real_s": 7200.25,
        "kernel": "6.18-outside",
    }
    document["context"]["guest"] = {"kernel": "6.1-inside", "ovs": "3.1.0", "share": str(tmp_path)}
    made[0].write_text(json.dumps(document))
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def page_of(files: list[Path]) -> str:
    """The pages of all measurements, one after the other."""
    made = make_report([load_measurement(path) for path in files])
    return "\n".join(text for name, text in made.items() if re.match("results/.*[.]md", name))


def table_after(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table after a line that begins with `heading`."""
    page = f"\n{page}"
    lines = page[page.index(f"\n{heading}") + 1 :].splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("|"))
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


# ---- the same page again


def test_the_small_files_make_the_same_page_byte_for_byte(
    files: list[Path], tmp_path: Path
) -> None:
    written, warnings = write_report(files, tmp_path / "one")
    assert not warnings and {path.suffix for path in written} == {".md", ".svg", ".json"}
    small = sorted((tmp_path / "one" / "results").glob("*.json"))
    assert [path.name for path in small] == [
        *("cycle-of-today.json", "failover-host.json", "fig4-virtual.json", "fig9-host.json"),
    ]
    write_report(small, tmp_path / "two")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    write_report(small, tmp_path / "one")  # over themselves
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_the_order_of_the_arguments_does_not_matter(files: list[Path], tmp_path: Path) -> None:
    write_report(files, tmp_path / "one")
    write_report([*files[::-1], files[0]], tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_small_files_hold_no_raw_data_and_nothing_any_machine_path(
    files: list[Path], tmp_path: Path
) -> None:
    write_report(files, tmp_path / "out")
    for name, content in contents(tmp_path / "out").items():
        assert b"bulky" not in content and str(tmp_path).encode() not in content, name
    small = json.loads((tmp_path / "out/results/fig4-virtual.json").read_text())
    assert small["command"] == "ri2n bench fig4 --kernel virtual --topologies b.yaml"
    assert "share" not in small["context"]["guest"]


def test_samples_that_change_nothing_are_left_out(tmp_path: Path) -> None:
    first, second = load_measurement(fig9(tmp_path / "fig9.json")).phases
    assert [sample.time_s for sample in first.samples] == [0.0, 0.9]
    assert (first.began_s, second.began_s) == (0.0, 1.0)
    assert [sample.time_s for sample in second.samples] == [1.0, 1.5, 1.9]
    assert second.samples[1].weights == {"C": {"eth0>eth0": 0.25, "eth1>eth1": 0.75}}


# ---- tables


def test_failover_rows_and_old_files_without_peers(tmp_path: Path) -> None:
    path = failover(tmp_path / "failover.json")
    _, _, *rows = table_after(page_of([path]), "# One fault")
    assert [row[:2] for row in rows] == [
        ["`nic_down`", "`max_min`"],
        ["`nic_down`", "*lcb*"],
        ["`switch_down`", "`max_min`"],
        ["`switch_down`", "*lcb*"],
    ]
    assert rows[3][2:] == ["4000", "4", "6000", "-", "316 (210..421)"]
    document = json.loads(path.read_text())
    document["settings"]["strategy"] = "ri2n_plus"
    document["rows"] = [row for row in document["rows"] if not row["peer"]]
    for row in document["rows"]:
        del row["strategy"], row["peer"]
    path.write_text(json.dumps(document))
    assert [row[1] for row in table_after(page_of([path]), "# One fault")[2:]] == [
        "`ri2n_plus`"
    ] * 2


def test_a_peer_without_udp_has_its_tcp_figures_only(tmp_path: Path) -> None:
    made = make_report([load_measurement(failover_without_udp(tmp_path / "failover.json"))])
    assert table_after(made["results/failover-host.md"], "# One fault")[3] == [
        *("`nic_down`", "*mptcp*", "-", "-", "-", "-", "316 (210..421)"),
    ]


def test_fig9_and_cycle(files: list[Path]) -> None:
    page = page_of(files)
    phases = table_after(page, "# Links are cut")[2:]
    assert phases[0] == ["e: all links", "never", "-", "0.25", "C 1.0", "C 95.0"]
    assert phases[1] == ["f: B lost link 1", "0.50", "2.0", "0.25", "C 3.0", "C 95.0"]
    head, _, row = table_after(page, "# The controller's round")
    assert dict(zip(head, row, strict=True)) == {
        **{"hosts": "32", "active pairs": "31", "rounds": "20"},
        **{"median, ms": "51", "longest, ms": "90", "CPU time, ms": "20"},
        **{"tables changed": "31", "the round that does, ms": "110", "its CPU time, ms": "70"},
    }


def test_every_page_has_what_made_its_tables_and_pictures(
    files: list[Path], tmp_path: Path
) -> None:
    measurements = [load_measurement(path) for path in files]
    write_report(files, tmp_path / "out")
    for measurement in measurements:
        page = (tmp_path / "out" / "results" / f"{measurement.name}.md").read_text()
        command = page.index(f"\n```sh\n{measurement.command}\n```\n")
        on = page.index("\nOn kernel ")
        assert page.startswith("# ") and command < on < page.index("\n| ---")
        assert "[context](#context)" in page and page.count("\n## Context\n") == 1
        tables = {"fig4": 2 * 3, "failover": 1, "fig9": 1, "cycle": 1}[measurement.kind]
        shown = {"fig4": 2 * 2, "failover": 2, "fig9": 1, "cycle": 0}[measurement.kind]
        # One more table is the context.
        assert len(re.findall(r"^\| ---", page, flags=re.M)) == tables + 1
        assert page.count("\n![") == shown
        for target in re.findall(r"\]\(([^#)]*)\)", page):
            assert (tmp_path / "out" / "results" / target).is_file(), target


def test_the_page_has_a_table_pictures_and_commands_for_each_question(
    files: list[Path], tmp_path: Path
) -> None:
    written, _ = write_report(files, tmp_path / "out")
    page = (tmp_path / "out" / "results.md").read_text()
    sections = page.split("\n## ")[1:]
    assert [section.splitlines()[0] for section in sections] == [
        "Does everybody get a fair share?",
        "How long is the outage when something dies, by flows?",
        "How soon do the weights follow when links are cut and given back?",
        "How long is a round of the controller?",
    ]
    for section, path, shown in zip(sections, files, (2, 2, 1, 0), strict=True):
        measurement = load_measurement(path)
        assert section.count("\n![") == shown
        # The table of the question, and below the pictures that of the commands.
        assert len(re.findall(r"^\| ---", section, flags=re.M)) == 2
        link = f"| [{measurement.name}](results/{measurement.name}.md) | `{measurement.command}` |"
        assert link in section and section.index(link) > section.rfind("\n![")
    targets = re.findall(r"\]\(([^)]*)\)", page)
    assert all((tmp_path / "out" / target).is_file() for target in targets)
    # Every page of a measurement is linked, and nothing is without a page.
    pages = {str(path.relative_to(tmp_path / "out")) for path in written if path.suffix == ".md"}
    assert pages - {"results.md"} <= set(targets)


def test_the_page_takes_the_most_streams_and_fills_gaps_from_other_measurements(
    tmp_path: Path,
) -> None:
    general = fig4(tmp_path / "fig4-a.json", shares=(0.5,))
    special = fig4(tmp_path / "fig4-a-more.json", shares=(0.25,))
    document = json.loads(special.read_text())
    for row in document["rows"]:
        if row["strategy"] == "max_min":
            row["strategy"] = "ri2n_plus"
    special.write_text(json.dumps(document))
    other = tmp_path / "fig4-a-of-another-kernel.json"
    document["context"]["lab_kernel"] = "virtual"
    for row in document["rows"]:
        row["strategy"] = "ri2n_plus_plus"
    other.write_text(json.dumps(document))
    made = make_report([load_measurement(path) for path in (other, special, general)])
    head, _, *rows = table_after(made["results.md"], "## Does everybody")
    assert head == ["", "b", "d"]
    assert [row[:2] for row in rows] == [
        ["`round_robin`", "0.50 / 0.50"],
        ["`ri2n_plus`", "0.25 / 0.25"],
        ["`max_min`", "0.50 / 0.50"],
        ["*lcb*", "0.50 / 0.50"],
        ["*mptcp*", "0.50 / 0.50"],
    ]
    assert "](results/fig4-a-total-8.svg)" in made["results.md"]
    assert made["results.md"].count("\n![") == 2
    for name in ("a", "a-more", "a-of-another-kernel"):
        assert f"(results/fig4-{name}.md)" in made["results.md"]


def test_a_measurement_without_rows_is_linked(tmp_path: Path) -> None:
    path = save(Report("stream", None, {}), tmp_path / "stream-none.json")
    page = make_report([load_measurement(path)])["results.md"]
    assert "## Other measurements" in page and "(results/stream-none.md)" in page


def test_the_context_tells_the_guest_from_the_machine(files: list[Path]) -> None:
    context = {row[0]: row[1] for row in table_after(page_of(files[:1]), "## Context")}
    assert context["kernel of the lab"] == "6.1-inside (virtual)"
    assert context["kernel of the machine"] == "6.18-outside"
    assert (context["virtual seconds"], context["real seconds"]) == ("900", "7200")
    assert context["queues at hosts"] == "`netem limit 1000 delay 5us rate 100Mbit`"
    assert context["queues at switch ports"] == "`tbf rate 100Mbit`"
    assert context["links and buffers"] == (
        "100 Mbit/s links, 128 KiB switch buffers, which drop their oldest frame when full"
    )
    assert (context["repeats"], context["largest spread between repeats"][:30]) == (
        "3",
        "share of the optimum 0.40; wor",
    )


def test_a_file_without_its_command_gets_it_from_its_settings(tmp_path: Path) -> None:
    assert load_measurement(fig4(tmp_path / "x.json")).command == (
        "ri2n bench fig4 --topologies b,d --strategies max_min,round_robin --peers mptcp,lcb "
        "--streams 1,8"
        " --seconds 10 --warmup 3 --repeat 3"
    )
    path = fig4(tmp_path / "x.json")
    path.write_text(
        json.dumps(
            {**json.loads(path.read_text()), "settings": {"strategies": [], "peers": ["lcb"]}}
        )
    )
    assert load_measurement(path).command == "ri2n bench fig4 --strategies none --peers lcb"
    assert load_measurement(fig9(tmp_path / "x.json")).command == (
        "ri2n bench fig9 --topology e --strategy max_min --streams 8 --phase-seconds 1"
    )


def test_odd_texts_break_no_table(tmp_path: Path) -> None:
    path = fig4(tmp_path / "fig4.json", streams=(8,))
    path.write_text(path.read_text().replace('"mptcp"', json.dumps("<b>|\x07&`x`[a](b)")))
    made = make_report([load_measurement(path)])
    rows = table_after(made["results/fig4-host.md"], "## 8 TCP streams per client")
    assert {len(row) for row in rows} == {3}
    assert rows[-1][0] == r"*&lt;b>\| &\`x\`\[a](b)*"
    outside_code = re.sub(r"`[^`\n]*`", "", made["results.md"].replace(r"\`", ""))
    assert "<b>" not in outside_code and "`" not in outside_code
