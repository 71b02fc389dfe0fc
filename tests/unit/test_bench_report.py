"""`ri2n bench report`:

from files of benches to a page, pictures and small files that make the same page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fair import Optimum, goodput_optimum
from ri2n_lab.bench.report import make_report, write_report
from ri2n_lab.bench.report_input import load_measurement
from ri2n_lab.bench.rows import fig4_row
from ri2n_sdn.cli.main import main
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology, load_topology

REPOSITORY = Path(__file__).parents[2]
REASON = "hosts with one and with two links | cannot be bonded"
Json = dict[str, Any]


def topology(name: str) -> Topology:
    return load_topology(REPOSITORY / "topologies" / "fig4" / f"{name}.yaml")


def fig4(
    path: Path, *, shares: tuple[float, ...] = (0.5, 0.9, 0.7), streams: tuple[int, ...] = (1, 8)
) -> Path:
    """`max_min` and `round_robin` and two peers on b and d, a run per share; one peer cannot do
    d.
    """
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
    return make_report([load_measurement(path) for path in files])["results.md"]


def table_after(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table after a line that begins with `heading`."""
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


def test_fig4_ours_come_first_and_a_peer_that_cannot_has_its_reason(files: list[Path]) -> None:
    page = page_of(files)
    head, _, *rows = table_after(page, "### 8 TCP streams per client")
    assert head == ["", "b", "d"]
    assert [row[0] for row in rows] == ["`round_robin`", "`max_min`", "*lcb*", "*mptcp*"]
    assert rows[0][1:] == ["0.70 / 0.70", "0.70 / 0.70"]
    assert rows[2][2] == "no (1)"
    assert "(1) *lcb*: hosts with one and with two links \\| cannot be bonded." in page


def test_fig4_median_spread_weights_and_the_papers_figures(files: list[Path]) -> None:
    head, _, *rows = table_after(
        page_of(files), "#### d: B has link 0 only, C has both (one TCP stream per client)"
    )
    cells = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    mine = cells["`round_robin`"]
    assert mine["share of the optimum"] == "0.70 (0.50..0.90)"
    assert mine["B, Mbit/s"] == f"{0.7 * 100 * 1448 / 1514:.1f}"
    assert mine["link 1 : link 0"] == "B 3.0, C 3.0"
    assert mine["paper: share"] == f"{142.9 / (2 * 112.2):.2f}"
    assert (
        cells["*mptcp*"]["paper: share"] == "-"
        and cells["*lcb*"]["share of the optimum"] == "no (1)"
    )


def test_failover_rows_and_old_files_without_peers(tmp_path: Path) -> None:
    path = failover(tmp_path / "failover.json")
    _, _, *rows = table_after(page_of([path]), "## One fault")
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
    assert [row[1] for row in table_after(page_of([path]), "## One fault")[2:]] == [
        "`ri2n_plus`"
    ] * 2


def test_a_peer_without_udp_has_its_tcp_figures_only(tmp_path: Path) -> None:
    path = failover(tmp_path / "failover.json")
    document = json.loads(path.read_text())
    for row in document["rows"]:
        if row["peer"]:
            row |= {"strategy": "mptcp", "outage_ms": None, "lost": None, "sent": None}
    path.write_text(json.dumps(document))
    made = make_report([load_measurement(path)])
    assert table_after(made["results.md"], "## One fault")[3] == [
        *("`nic_down`", "*mptcp*", "-", "-", "-", "-", "316 (210..421)"),
    ]


def test_losses_without_end_are_told_from_a_short_outage(tmp_path: Path) -> None:
    path = failover(tmp_path / "failover.json")
    document = json.loads(path.read_text())
    for row in document["rows"]:
        row["lasting"] = row["peer"] and (row["fault"] == "nic_down" or row["repeat"] == 1)
    path.write_text(json.dumps(document))
    made = make_report([load_measurement(path)])
    rows = table_after(made["results.md"], "## One fault")[2:]
    assert [row[5] for row in rows] == ["no", "yes", "no", "1 of 2"]


def test_fig9_and_cycle(files: list[Path]) -> None:
    page = page_of(files)
    phases = table_after(page, "## Links are cut")[2:]
    assert phases[0] == ["e: all links", "never", "-", "0.25", "C 1.0", "95.0"]
    assert phases[1] == ["f: B lost link 1", "0.50", "2.0", "0.25", "C 3.0", "95.0"]
    assert table_after(page, "## The controller's round")[2] == [
        "32",
        "31",
        "20",
        "51 (20)",
        "90",
        "110 (70)",
        "31",
    ]


def test_rounds_beside_spinning_programs_say_how_the_controller_settled(tmp_path: Path) -> None:
    path = cycle(tmp_path / "cycle.json")
    document = json.loads(path.read_text())
    document["rows"][0] |= {
        "settle_s": 33.1,
        "connections_dropped": 0,
        "handler_errors": 2,
        "nic_deaths": 1,
    }
    path.write_text(json.dumps(document))
    head, _, row = table_after(page_of([path]), "## The controller's round")
    assert head[-4:] == [
        "settled after, s",
        "connections dropped",
        "errors of handlers",
        "NICs taken for dead",
    ]
    assert row[-4:] == ["33", "0", "2", "1"]


def test_every_table_and_picture_is_followed_by_what_made_it(
    files: list[Path], tmp_path: Path
) -> None:
    page = page_of(files)
    # Every table but the contexts themselves, and every picture.
    tables = len(re.findall(r"^\| ---", page, flags=re.M)) - len(files)
    shown = page.count("\n![")
    assert (tables, shown) == (2 * 3 + 1 + 1 + 1, 2 * 2 + 2 + 1)
    assert page.count("<sub>`ri2n bench ") == tables + shown
    write_report(files, tmp_path / "out")
    for target in re.findall(r"\]\((results/[^)]*)\)", page):
        assert (tmp_path / "out" / target).is_file()
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall("### (.*)", page)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= anchors


def test_the_context_tells_the_guest_from_the_machine(files: list[Path]) -> None:
    context = {row[0]: row[1] for row in table_after(page_of(files), "### Context of fig4-virtual")}
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
    rows = table_after(made["results.md"], "### 8 TCP streams per client")
    assert {len(row) for row in rows} == {3}
    assert rows[-1][0] == r"*&lt;b>\| &\`x\`\[a](b)*"
    outside_code = re.sub(r"`[^`\n]*`", "", made["results.md"].replace(r"\`", ""))
    assert "<b>" not in outside_code and "`" not in outside_code


# ---- bad input


def edited(change: Callable[[Json], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        document = json.loads(fig4(path).read_text())
        change(document)
        path.write_text(json.dumps(document))

    return write


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_text("not json"), "is not JSON"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "is not JSON"),
        (lambda path: path.write_text("[" * 100_000), "is not JSON"),
        (lambda path: path.write_text("[]"), "must be a JSON mapping"),
        (edited(lambda document: document.update(format=2)), "format: is 2"),
        (edited(lambda document: document.pop("format")), "format: is None"),
        (edited(lambda document: document.update(kind="fig5")), "kind: is 'fig5'"),
        (edited(lambda document: document.update(kind=["fig4"])), "kind: is ['fig4']"),
        (edited(lambda document: document.update(kind="fig9")), "rows[0].phase"),
        (edited(lambda document: document.update(rows={})), "rows: is missing or no list"),
        (edited(lambda document: document.pop("context")), "context: is missing"),
        (edited(lambda document: document["rows"][2].pop("worst_share")), "rows[2].worst_share"),
        (edited(lambda document: document["rows"][2].update(streams="8")), "rows[2].streams"),
        (
            edited(lambda document: document["rows"][2].update(worst_share=float("nan"))),
            "NaN is no number",
        ),
        (edited(lambda document: document["context"].update(labs=[1])), "context.labs"),
    ],
)
def test_bad_files_are_one_line_and_nothing_is_written(
    make: Callable[[Path], object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, out = fig9(tmp_path / "good.json"), tmp_path / "bad.json", tmp_path / "out"
    make(bad)
    code = ri2n("bench", "report", str(good), str(bad), "-o", str(out))
    captured = capsys.readouterr()
    assert code == 2 and captured.err.count("\n") == 1 and not captured.out
    assert str(bad) in captured.err and words in captured.err
    assert not out.exists()


def ri2n(*arguments: str) -> int:
    """The exit code of the command line in this process."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.argv", ["ri2n", *arguments])
        main()
    return ended.value.code if isinstance(ended.value.code, int) else 0


def test_an_incomplete_run_is_marked_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fig4(tmp_path / "fig4-short.json")
    path.write_text(path.read_text().replace('"complete": true', '"complete": false'))
    assert ri2n("bench", "report", str(path), "-o", str(tmp_path / "out")) == 0
    captured = capsys.readouterr()
    assert f"warning: {path}: the run is incomplete" in captured.err
    assert str(tmp_path / "out/results.md") in captured.out.splitlines()
    assert (
        "## Everybody sends to one host: fig4-short (incomplete)"
        in (tmp_path / "out/results.md").read_text()
    )


def test_two_runs_need_two_names(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, two = (
        fig4(tmp_path / "fig4-x.json"),
        fig4(tmp_path / "other" / "fig4-x.json", shares=(0.8,)),
    )
    with pytest.raises(BadInput, match=r"would be fig4-x\.json.*rename one"):
        write_report([one, two], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pictures_of_an_older_page_are_told(tmp_path: Path) -> None:
    path = fig4(tmp_path / "fig4.json")
    write_report([path], tmp_path / "out")
    _, warnings = write_report([fig4(tmp_path / "fig4.json", streams=(8,))], tmp_path / "out")
    assert [line.rsplit("/", 1)[-1] for line in warnings] == [
        "fig4-host-total-1.svg: is not part of this page",
        "fig4-host-worst-1.svg: is not part of this page",
    ]


def test_a_full_disk_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_report([fig4(tmp_path / "fig4.json")], tmp_path / "out")
    before = contents(tmp_path / "out")
    write_text, calls = Path.write_text, []

    def full(self: Path, *args: Any, **keywords: Any) -> int:
        calls.append(self)
        if len(calls) == 4:
            raise OSError(28, "No space left on device", str(self))
        return write_text(self, *args, **keywords)

    path = fig4(tmp_path / "fig4.json", shares=(0.3,))
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(BadInput, match="No space left on device"):
        write_report([path], tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    path = fig4(tmp_path / "fig4.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file"):
        write_report([path], tmp_path / "file" / "docs")
