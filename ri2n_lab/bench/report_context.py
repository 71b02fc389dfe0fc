# SPDX-License-Identifier: Apache-2.0
"""What a measurement ran on: in one sentence, and the whole as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from ri2n_lab.bench.report_cells import cell, code, prose
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_rows import FailoverRow, Fig4Row, Number, figures_of
from ri2n_sdn.fabric.topology import Topology

__all__ = ["context_lines", "description", "source"]

Json = dict[str, Any]


def source(measurement: Measurement) -> Iterator[str]:
    """A paragraph that says what was measured on."""
    context = measurement.context
    inner = {**context, **context.get("guest", {})}
    rows = measurement.fig4 or measurement.failover
    words = [f"kernel {inner.get('kernel', '?')} ({context.get('lab_kernel', 'host')})"]
    words += [f"{text} datapath" for text in _of_labs(measurement, "datapath")]
    words += [f"Open vSwitch {inner.get('ovs')}"] if inner.get("ovs") else []
    words += (
        [f"iperf3 {inner.get('iperf3')}"]
        if measurement.kind in ("fig4", "fig9", "stream") and inner.get("iperf3")
        else []
    )
    words += _of_labs(measurement, "congestion_control")
    words += [_rates(measurement)] if _rates(measurement) else []
    words += [f"repeats: {_repeats(rows)}"] if rows else []
    words += [str(context.get("started", ""))[:10]] if context.get("started") else []
    yield from prose(f"On {cell(', '.join(words))}. More: [context](#context).")


def context_lines(measurement: Measurement) -> Iterator[list[str]]:
    """All of the context, as pairs of what it is and its value."""
    context, settings = measurement.context, measurement.settings
    guest: Json = context.get("guest", {})
    inner = {**context, **guest}
    yield ["command", code(measurement.command)]
    yield ["data", f"[{measurement.name}.json]({measurement.name}.json)"]
    yield ["complete", "yes" if measurement.complete else "no"]
    yield ["kernel of the lab", f"{inner.get('kernel', '?')} ({context.get('lab_kernel', 'host')})"]
    if guest:
        yield ["kernel of the machine", str(context.get("kernel", "?"))]
    yield ["machine", f"{context.get('machine', '?')}, {context.get('cpus', '?')} CPUs"]
    yield from _if("datapath", _of_labs(measurement, "datapath"))
    yield [
        "versions",
        ", ".join(
            f"{name} {inner[name]}"
            for name in ("ri2n", "ovs", "iperf3", "python")
            if inner.get(name)
        ),
    ]
    yield from _if("congestion control", _of_labs(measurement, "congestion_control"))
    yield [
        "the kernel's defaults",
        f"{inner.get('default_congestion_control')}, {inner.get('default_qdisc')}",
    ]
    yield from _if("queues at switch ports", _qdiscs(measurement, switches=True))
    yield from _if("queues at hosts", _qdiscs(measurement, switches=False))
    yield from _if("offloads", _offloads(measurement))
    yield from _if("links and buffers", [_rates(measurement)] if _rates(measurement) else [])
    seeds = [str(inner["seed"])] if inner.get("seed") is not None else _of_labs(measurement, "seed")
    yield ["seed", ", ".join(seeds) or "none: nothing of the bench draws random numbers"]
    yield from _if("seconds of warm-up and measured", _both(settings, "warmup", "seconds"))
    rows = measurement.fig4 or measurement.failover
    if rows:
        yield ["repeats", _repeats(rows)]
        yield ["largest spread between repeats", _largest_spread(measurement)]
    for key, text in (("guest_s", "virtual seconds"), ("real_s", "real seconds")):
        if isinstance(context.get(key), Number):
            guests_clock = key == "guest_s" and context.get("lab_kernel") != "virtual"
            yield ["seconds in the guest" if guests_clock else text, f"{context[key]:.0f}"]
    for key, text in (
        ("load_average", "load average at the start"),
        ("load_average_at_end", "and at the end"),
    ):
        if isinstance(context.get(key), list):
            yield [
                text,
                ", ".join(f"{value:.2f}" for value in context[key] if isinstance(value, Number)),
            ]
    yield ["date", str(context.get("started", "?"))]


def _if(what: str, found: Sequence[str]) -> Iterator[list[str]]:
    if found:
        yield [what, "; ".join(found)]


def _both(settings: Json, *keys: str) -> list[str]:
    return (
        [", ".join(str(settings[key]) for key in keys)]
        if all(key in settings for key in keys)
        else []
    )


def _labs(measurement: Measurement) -> list[Json]:
    labs: dict[str, Json] = measurement.context.get("labs", {})
    return [labs[name] for name in sorted(labs)]


def _of_labs(measurement: Measurement, key: str) -> list[str]:
    return sorted({str(lab[key]) for lab in _labs(measurement) if lab.get(key) is not None})


def _qdiscs(measurement: Measurement, *, switches: bool) -> list[str]:
    found = {
        line
        for lab in _labs(measurement)
        for where, lines in lab["qdiscs"].items()
        if (where == "sw") is switches
        for line in lines
    }
    return [code(line) for line in sorted(found)]


def _offloads(measurement: Measurement) -> list[str]:
    lines = {line for lab in _labs(measurement) for line in lab["offloads"]}
    if not lines:
        return []
    on = sorted(
        line.partition(":")[0] for line in lines if line.partition(":")[2].split()[:1] == ["on"]
    )
    return [f"on: {', '.join(on)}"] if on else ["checksums, segmentation and receive offloads off"]


def _topologies(measurement: Measurement) -> list[Topology]:
    """The topologies that the settings hold whole, not only by name."""
    settings = measurement.settings
    whole = settings.get("topologies", [settings.get("topology")])
    found = []
    for each in whole if isinstance(whole, list) else []:
        try:
            found.append(Topology.model_validate(each))
        except ValidationError:
            continue
    return found


def _rates(measurement: Measurement) -> str:
    """`100 Mbit/s links, 128 KiB switch buffers, which ...`.

    Empty for a file that does not hold its topologies.
    """
    found = _topologies(measurement)
    rates = {
        nic.rate_bps / 1e6
        for topology in found
        for host in topology.hosts.values()
        for nic in host.nics
    }
    buffers = {
        switch.port_buffer_bytes / 1024
        for topology in found
        for switch in topology.switches.values()
    }
    texts = [f"{' and '.join(f'{rate:g}' for rate in sorted(rates))} Mbit/s links"] if rates else []
    texts += (
        [f"{' and '.join(f'{size:g}' for size in sorted(buffers))} KiB switch buffers"]
        if buffers
        else []
    )
    drops = {switch.drop for topology in found for switch in topology.switches.values()}
    texts += [f"which drop their {' or '.join(sorted(drops))} frame when full"] if drops else []
    return ", ".join(texts)


def description(measurement: Measurement, topology: str) -> str:
    """What the topology file says that it is.

    Empty when the file of the measurement does not hold it.
    """
    found = [each for each in _topologies(measurement) if each.name == topology]
    return cell(found[0].description) if found else ""


def _repeats(rows: Sequence[Fig4Row | FailoverRow]) -> str:
    """How often each was measured: `3`, or `2..3` in an incomplete run."""
    counts: dict[tuple[object, ...], int] = {}
    for row in rows:
        if row.why_not is None:
            what = (
                (row.topology, row.streams) if isinstance(row, Fig4Row) else (row.fault, row.mode)
            )
            counts[(row.strategy, *what)] = counts.get((row.strategy, *what), 0) + 1
    if not counts:
        return "0"
    low, high = min(counts.values()), max(counts.values())
    return str(low) if low == high else f"{low}..{high}"


def _largest_spread(measurement: Measurement) -> str:
    """The largest difference between two repeats, of each figure that has a picture."""
    rows = measurement.fig4 or measurement.failover
    groups: dict[tuple[object, ...], list[Any]] = {}
    for row in rows:
        what = (row.topology, row.streams) if isinstance(row, Fig4Row) else (row.fault, row.mode)
        groups.setdefault((row.strategy, *what), []).append(row)
    texts = []
    for figure in figures_of(measurement.kind):
        if figure.plot is None:
            continue
        found = [figure.bar([row.figure(figure.name) for row in each]) for each in groups.values()]
        widths = [bar.high - bar.low for bar in found if bar is not None]
        texts.append(f"{figure.title} {max(widths, default=0.0):{figure.show}}")
    return "; ".join(texts)
