# SPDX-License-Identifier: Apache-2.0
"""The report's pictures, as a reader of the SVG sees them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ri2n_lab.bench import stream
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.drawing import Bar, Mark, Series, Steps, bars, steps
from ri2n_lab.bench.figure import names
from ri2n_lab.bench.report import make_report
from ri2n_lab.bench.report_input import load_measurement
from tests.unit.test_bench_report import failover, failover_without_udp, fig4, fig9, table_after

SVG = "{http://www.w3.org/2000/svg}"
SMALL = "results/fig4-host-total-8.svg"
Box = tuple[float, float, float, float]


def texts(svg: str) -> list[str]:
    """All texts that a reader sees, in the order in which they are drawn."""
    root = ElementTree.fromstring(svg)
    return ["".join(text.itertext()).strip() for text in root.iter(f"{SVG}text")]


def named(svg: str, kind: str) -> dict[str, ElementTree.Element]:
    """{id without `kind`: the first path in it} of all that has an id of that kind."""
    found = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        name = group.get("id", "")
        if name.startswith(f"{kind}:"):
            path = group.find(f"{SVG}path")
            assert path is not None and name not in found
            found[name.removeprefix(f"{kind}:")] = path
    return found


def points(path: ElementTree.Element) -> list[tuple[float, float]]:
    numbers = [float(word) for word in re.findall(r"-?\d+(?:\.\d+)?", path.attrib["d"])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def box(path: ElementTree.Element) -> Box:
    """Left, top, width and height."""
    across, down = zip(*points(path), strict=True)
    return min(across), min(down), max(across) - min(across), max(down) - min(down)


def fill(path: ElementTree.Element) -> str:
    found = re.search(r"fill: ([^;]+)", path.attrib["style"])
    assert found
    return found[1]


def content(svg: str) -> tuple[list[str], list[str]]:
    """What does not change with the version of matplotlib: texts, and the ids of what is drawn."""
    kinds = ("bar", "spread", "line")
    return texts(svg), [f"{kind}:{name}" for kind in kinds for name in named(svg, kind)]


def test_pictures_are_whole_svg_on_white_with_legend_axes_and_units(tmp_path: Path) -> None:
    files = [fig4(tmp_path / "fig4-virtual.json"), failover(tmp_path / "failover_host.json")]
    files.append(fig9(tmp_path / "fig9.json"))
    made = make_report([load_measurement(path) for path in files])
    pictures = {name: text for name, text in made.items() if name.endswith(".svg")}
    assert len(pictures) == 7
    for svg in pictures.values():
        root = ElementTree.fromstring(svg)
        page = root.find(f"{SVG}g/{SVG}g/{SVG}path")
        assert page is not None and fill(page) == "#ffffff"
        assert box(page)[2:] == tuple(map(float, root.attrib["viewBox"].split()[2:]))
        title = root.find(f"{SVG}title")
        assert title is not None and title.text in texts(svg)
    names = {
        *("round_robin", "max_min", "lcb", "mptcp", "ours:", "peers:", "topology", "no"),
        "share of its fair rate",
    }
    assert names <= set(texts(pictures["results/fig4-virtual-worst-8.svg"]))
    assert {"ms, logarithmic", "nic_down", "fault", "10,000"} <= set(
        texts(pictures["results/failover-host-outage.svg"])
    )
    assert {"eth0", "eth1", "client C", "time, s", "f: B lost link 1"} <= set(
        texts(pictures["results/fig9-host-weights.svg"])
    )


def test_bars_are_as_high_as_their_values_and_peers_are_hatched() -> None:
    series = [Series("max_min", True, 3), Series("lcb", False, 0)]
    values = {
        ("d", "max_min"): Bar(1.0, 1.0, 1.0),
        ("d", "lcb"): Bar(0.25, 0.2, 0.3),
        ("h", "lcb"): Bar(None),
    }
    svg = bars(
        "t", ["d", "h"], series, values, y_label="share", x_label="topology", mark=Mark(1.0, "best")
    )
    found = named(svg, "bar")
    assert set(found) == {"d:max_min:1", "d:lcb:0.25"}
    ours, peer = box(found["d:max_min:1"]), box(found["d:lcb:0.25"])
    assert ours[3] == pytest.approx(4 * peer[3], abs=0.01)
    assert ours[1] + ours[3] == pytest.approx(peer[1] + peer[3], abs=0.01)
    assert ours[0] + ours[2] < peer[0]
    assert fill(found["d:max_min:1"]) == "#08306b"
    pattern = re.fullmatch(r"url\(#(.*)\)", fill(found["d:lcb:0.25"]))
    assert pattern and svg.count(f'id="{pattern[1]}"') == 1
    assert texts(svg).count("no") == 1 and texts(svg).count("best") == 1


def test_a_spread_goes_from_the_smallest_to_the_largest_and_one_value_has_none() -> None:
    one = [Series("max_min", True, 3)]
    values = {("d", "max_min"): Bar(0.5, 0.25, 1.0), ("h", "max_min"): Bar(0.5, 0.5, 0.5)}
    svg = bars("t", ["d", "h"], one, values, y_label="share", x_label="topology")
    bar, spread = box(named(svg, "bar")["d:max_min:0.5"]), named(svg, "spread")
    assert set(spread) == {"d:max_min:0.25..1"}
    x, top, width, height = box(spread["d:max_min:0.25..1"])
    assert width == 0 and x == pytest.approx(bar[0] + bar[2] / 2, abs=0.01)
    # A height of 0.75, from halfway up the bar.
    assert height == pytest.approx(1.5 * bar[3], abs=0.01)
    assert top + height == pytest.approx(bar[1] + bar[3] / 2, abs=0.01)


def test_a_logarithmic_decade_is_as_high_as_the_next_and_nothing_is_still_seen() -> None:
    one = [Series("max_min", True, 3)]
    values = {(str(ms), "max_min"): Bar(float(ms), ms, ms) for ms in (0, 10, 100, 1000)}
    svg = bars(
        "t", ["0", "10", "100", "1000"], one, values, y_label="ms", x_label="fault", log=True
    )
    heights = [box(each)[3] for each in named(svg, "bar").values()]
    assert heights[2] == pytest.approx(2 * heights[1], abs=0.02)
    assert heights[3] == pytest.approx(3 * heights[1], abs=0.02)
    assert 0.5 < heights[0] < 5
    assert {"\u2264 1", "10", "100", "1,000"} <= set(texts(svg))


def test_a_peer_without_udp_is_not_in_the_picture_of_udp(tmp_path: Path) -> None:
    made = make_report([load_measurement(failover_without_udp(tmp_path / "failover.json"))])
    assert "mptcp" not in texts(made["results/failover-host-outage.svg"])
    assert "mptcp" in texts(made["results/failover-host-tcp.svg"])


def test_a_strategy_has_one_colour_in_all_pictures(tmp_path: Path) -> None:
    path = fig4(tmp_path / "fig4.json", streams=(8,))

    def fills() -> dict[str, str]:
        bars_of = named(make_report([load_measurement(path)])[SMALL], "bar")
        return {name: fill(each) for name, each in bars_of.items()}

    together = fills()
    document = json.loads(path.read_text())
    document["rows"] = [row for row in document["rows"] if row["strategy"] in ("max_min", "mptcp")]
    path.write_text(json.dumps(document))
    alone = fills()
    assert len(alone) == 4 and alone.items() <= together.items()


def test_shares_hold_until_the_next_sample() -> None:
    panel = Steps("client C", {"eth1": [(0.0, 0.5), (5.0, 1.0)]})
    svg = steps("t", [panel], [Mark(0.0, "e"), Mark(5.0, "f")], 10.0, y_label="share")
    lines = named(svg, "line")
    assert set(lines) == {"client_C:eth1"}
    # Points on a straight line may be left out.
    corners = points(lines["client_C:eth1"])
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = corners[0], *corners[1:3], corners[-1]
    assert (y1, x2, y3) == (y0, x1, y2) and y2 < y1
    assert x1 - x0 == pytest.approx(x3 - x2, abs=0.01)


def test_odd_names_are_in_the_picture_as_they_are(tmp_path: Path) -> None:
    path = fig4(tmp_path / "fig4.json", streams=(8,))
    path.write_text(path.read_text().replace('"mptcp"', json.dumps("<b>|\x07&`x`[a](b)$1$")))
    made = make_report([load_measurement(path)])
    assert len(table_after(made["results/fig4-host.md"], "## 8 TCP streams per client")[-1]) == 3
    assert "<b>|&`x`[a](b)$1$" in texts(made[SMALL])


def test_the_same_picture_has_the_same_bytes() -> None:
    panel = Steps("client C", {"eth1": [(0.0, 0.5), (5.0, 1.0)]})
    made = [steps("t", [panel], [Mark(5.0, "f")], 10.0, y_label="share") for _ in range(2)]
    assert made[0] == made[1] and "20" not in re.findall(r"<dc:date>\s*(..)", made[0])
    one = [Series("max_min", True, 3), Series("lcb", False, 0)]
    values = {("d", "lcb"): Bar(0.5, 0.25, 1.0)}
    made = [bars("t", ["d"], one, values, y_label="y", x_label="x") for _ in range(2)]
    assert made[0] == made[1]


def test_the_command_line_does_not_load_what_draws() -> None:
    code = (
        "import sys, ri2n_sdn.cli.main, ri2n_lab.cli.bench, ri2n_lab.bench.report;"
        "print([name for name in sys.modules if name.split('.')[0] == 'matplotlib'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_chart_is_drawn_of_the_rows_of_several_measurements(tmp_path: Path) -> None:
    """One stream: our strategy is in one file, a peer in another, that cannot in a third."""
    key = {"links_mbps": "100,50", "mode": None, "proto": "tcp", "cc": "cubic", "repeat": 1}
    none = dict.fromkeys(names(stream.FIGURES))
    paths = []
    for name, more in (
        ("stream-a", {"strategy": "max_min", "peer": False, "of_sum": 0.98}),
        ("stream-b", {"strategy": "mptcp", "peer": True, "of_sum": 0.49}),
        ("stream-c", {"strategy": "lcb", "peer": True, "why_not": "no bonding"}),
        ("stream-d", {"strategy": "max_min", "peer": False, "of_sum": 0.9, "cc": "reno"}),
    ):
        report = Report("stream", None, {})
        report.add({**none, **key, **more}, {}, [])
        report.finish()
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(report.document))
    made = make_report([load_measurement(path) for path in paths])
    svg = made["results/question-stream.svg"]
    found = named(svg, "bar")
    assert set(found) == {"100,50:max_min:0.98", "100,50:mptcp:0.49"}
    ours, peer = box(found["100,50:max_min:0.98"]), box(found["100,50:mptcp:0.49"])
    assert ours[3] == pytest.approx(2 * peer[3], abs=0.01)
    assert fill(found["100,50:max_min:0.98"]) == "#08306b"
    assert {"lcb", "no", "sum", "links, Mbit/s"} <= set(texts(svg))
    assert "](results/question-stream.svg)" in made["results.md"]
