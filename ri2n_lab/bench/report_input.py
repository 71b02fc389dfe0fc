# SPDX-License-Identifier: Apache-2.0
"""Read the JSON files that the benches write, and write them again without their bulky raw data."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NoReturn

from pydantic import ValidationError

from ri2n_lab.bench.context import FORMAT
from ri2n_lab.bench.report_rows import (
    KINDS,
    CycleRow,
    DemandRow,
    FailoverRow,
    Fig4Row,
    Fig9Row,
    HelperRow,
    JobsRow,
    ParallelRow,
    Phase,
    Row,
    RulesRow,
    Sample,
    StreamRow,
    VbftRow,
    WebRow,
    row_model,
)
from ri2n_sdn.errors import BadInput

__all__ = ["Measurement", "load_measurement", "thin_json"]

Json = dict[str, Any]
# So that most rows are one line each.
LINE_CHARS = 600
# What is kept of the context; anything else a bench may add one day is not published by accident.
CONTEXT_KEYS = (
    "lab_kernel",
    "kernel",
    "machine",
    "cpus",
    "load_average",
    "load_average_at_end",
    "ri2n",
    "python",
    "ovs",
    "iperf3",
    "default_congestion_control",
    "default_qdisc",
    "seed",
    "guest_s",
    "real_s",
    "started",
)
OFFLOADS = (
    "rx-checksumming",
    "tx-checksumming",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
)
# A handle, a device and a count of users differ from port to port and say nothing about the queue.
QDISC_NOISE = re.compile(r"^qdisc | (?:[0-9a-f]+:|dev \S+|root|parent \S+|refcnt \d+)(?= |$)")
SHARE_DIGITS = 3
TIME_DIGITS = 2


@dataclass(frozen=True)
class Measurement:
    """One file: `name` is `<kind>-<short name>`; only the rows of its own kind are filled.

    `phases` are figure 9's samples, in seconds from the start of the first phase, without those
    that change nothing.
    """

    kind: str
    name: str
    complete: bool
    command: str
    settings: Json
    context: Json
    fig4: tuple[Fig4Row, ...] = ()
    failover: tuple[FailoverRow, ...] = ()
    fig9: tuple[Fig9Row, ...] = ()
    cycle: tuple[CycleRow, ...] = ()
    stream: tuple[StreamRow, ...] = ()
    demand: tuple[DemandRow, ...] = ()
    helper: tuple[HelperRow, ...] = ()
    vbft: tuple[VbftRow, ...] = ()
    parallel: tuple[ParallelRow, ...] = ()
    rules: tuple[RulesRow, ...] = ()
    jobs: tuple[JobsRow, ...] = ()
    web: tuple[WebRow, ...] = ()
    phases: tuple[Phase, ...] = ()


def load_measurement(path: Path) -> Measurement:
    """Read one file of `ri2n bench ... --json` or of a report.

    An incomplete one is fine, its `complete` is False. Raises BadInput, one line that names the
    file and the key: no such file, no JSON, another format, an unknown kind, a row that is not of
    its kind.
    """
    document = _read(path)
    if document.get("format") != FORMAT:
        raise BadInput(
            f"{path}: format: is {document.get('format')!r}, this version reads {FORMAT}"
        )
    kind = document.get("kind")
    if kind not in KINDS:
        raise BadInput(f"{path}: kind: is {kind!r}, must be one of {', '.join(KINDS)}")
    for key, form in (("settings", dict), ("context", dict), ("rows", list)):
        if not isinstance(document.get(key), form):
            raise BadInput(
                f"{path}: {key}: is missing or no {'list' if form is list else 'mapping'}"
            )
    settings = {
        key: _public(value) for key, value in document["settings"].items() if key != "json_file"
    }
    context = _thin_context(document["context"], path)
    model = row_model(kind)
    rows = tuple(
        _validated(model, row, f"{path}: rows[{index}]")
        for index, row in enumerate(document["rows"])
    )
    command = document.get("command")
    rows_by_kind: dict[str, Any] = {kind: rows}
    if kind == "failover":
        default = str(settings.get("strategy", "max_min"))
        rows_by_kind[kind] = tuple(
            row if row.strategy else row.model_copy(update={"strategy": default})
            for row in rows
            if isinstance(row, FailoverRow)
        )
    return Measurement(
        kind=kind,
        name=f"{kind}-{_short_name(path, kind, context)}",
        complete=document.get("complete") is True,
        command=_public_command(command)
        if isinstance(command, str)
        else _command(kind, settings, context),
        settings=settings,
        context=context,
        phases=_thin_phases(document.get("raw"), path) if kind == "fig9" else (),
        **rows_by_kind,
    )


def thin_json(measurement: Measurement) -> str:
    """The measurement as a file that `load_measurement` reads as the very same measurement."""
    rows: tuple[Row, ...] = getattr(measurement, measurement.kind)
    document = {
        "format": FORMAT,
        "kind": measurement.kind,
        "complete": measurement.complete,
        "command": measurement.command,
        "settings": measurement.settings,
        "context": measurement.context,
        "rows": [row.model_dump(exclude_defaults=True) for row in rows],
        "raw": [phase.model_dump() for phase in measurement.phases],
    }
    return _pretty(document) + "\n"


def _read(path: Path) -> Json:
    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no number")

    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also what is not UTF-8
        raise BadInput(f"{path}: is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadInput(f"{path}: must be a JSON mapping that `ri2n bench` wrote")
    return document


def _validated(model: type[Row], data: object, source: str) -> Row:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("int", "float"))
        raise BadInput(f"{source}{'.' if where else ''}{where}: {first['msg']}") from None


def _short_name(path: Path, kind: str, context: Json) -> str:
    """`fig4-virtual.json` is `virtual`.

    A file that is called like its kind is named after its kernel.
    """
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    stem = (
        stem.removeprefix(kind).strip("-") if stem == kind or stem.startswith(f"{kind}-") else stem
    )
    return (
        stem
        or re.sub(r"[^a-z0-9]+", "-", str(context.get("lab_kernel", "host")).lower()).strip("-")
        or "host"
    )


# ---- what may be published


def _public(value: Any) -> Any:
    """`value` without the folders of absolute paths, which say where a machine keeps its files."""
    if isinstance(value, str):
        return PurePath(value).name if value.startswith(("/", "~")) else value
    if isinstance(value, dict):
        return {key: _public(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_public(each) for each in value]
    return value


def _public_command(command: str) -> str:
    """The command without absolute paths, and without the option for the result's file."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word.startswith("--json="):
            skip = False
        elif word == "--json":
            skip = True
        else:
            option, equals, value = word.partition("=")
            kept.append(f"{option}={_public(value)}" if equals else _public(word))
    return shlex.join(kept)


def _command(kind: str, settings: Json, context: Json) -> str:
    """The command that has these settings, for a file that does not hold its command."""
    options = {"phase_s": "--phase-seconds", "faults": "--fault", "topologies": "--topologies"}
    options |= {"patterns": "--pattern", "modes": "--mode", "engines": "--engine"}
    words = ["ri2n", "bench", kind]
    if context.get("lab_kernel", "host") != "host":
        words += ["--kernel", str(context["lab_kernel"])]
    for key, value in settings.items():
        items = value if isinstance(value, list) else [value]
        texts = [
            str(item["name"]) if isinstance(item, dict) and "name" in item else str(item)
            for item in items
        ]
        if key == "strategies" and not value:
            texts = ["none"]  # left out it would be all of them
        elif value is True:
            words.append("--" + key)
            continue
        elif value in (None, "", [], False) or (key, value) in (
            ("mode", "flow"),
            ("pattern", "bulk"),
        ):
            continue
        option = options.get(key, "--" + key.replace("_", "-"))
        if kind == "failover" and key == "faults":
            words += [word for text in texts for word in (option, text)]
        else:
            words += [option, ",".join(texts)]
    return shlex.join(words)


def _thin_context(context: Json, path: Path) -> Json:
    kept: Json = {
        "lab_kernel": "host",
        **{key: _public(context[key]) for key in CONTEXT_KEYS if key in context},
    }
    guest, labs = context.get("guest"), context.get("labs")
    if isinstance(guest, dict):
        kept["guest"] = {
            key: _public(guest[key]) for key in CONTEXT_KEYS if key in guest and key != "lab_kernel"
        }
        labs = labs if labs is not None else guest.get("labs")
    if labs is None:
        return kept
    try:
        kept["labs"] = {name: _thin_lab(lab) for name, lab in labs.items()}
    except (AttributeError, TypeError):
        raise BadInput(f"{path}: context.labs: is not as `ri2n bench` writes it") from None
    return kept


def _thin_lab(lab: Json) -> Json:
    qdiscs = {
        where: sorted(
            {
                " ".join(QDISC_NOISE.sub("", line).split())
                for line in lines
                if " dev lo " not in line
            }
        )
        for where, lines in (lab.get("qdiscs") or {}).items()
    }
    # The management network and the bridge itself have no queue of ours.
    qdiscs = {
        where: [line for line in lines if not line.startswith(("noqueue", "pfifo_fast"))]
        for where, lines in qdiscs.items()
    }
    offloads = [
        line.strip() for line in lab.get("offloads") or [] if line.strip().startswith(OFFLOADS)
    ]
    return {
        "datapath": lab.get("datapath"),
        "congestion_control": lab.get("congestion_control"),
        "qdiscs": qdiscs,
        "offloads": offloads,
        "seed": lab.get("seed"),
    }


# ---- figure 9's samples


def _thin_phases(raw: object, path: Path) -> tuple[Phase, ...]:
    if not isinstance(raw, list):
        raise BadInput(f"{path}: raw: is missing or no list")
    found = [_validated(Phase, item, f"{path}: raw[{index}]") for index, item in enumerate(raw)]
    phases = [phase for phase in found if isinstance(phase, Phase)]
    start_s = phases[0].began_s if phases else 0.0
    return tuple(
        Phase(
            phase=phase.phase,
            began_s=round(phase.began_s - start_s, TIME_DIGITS),
            samples=_changes([_rounded(sample, start_s) for sample in phase.samples]),
        )
        for phase in phases
    )


def _rounded(sample: Sample, start_s: float) -> Sample:
    weights = {
        host: {path: round(share, SHARE_DIGITS) for path, share in paths.items()}
        for host, paths in sample.weights.items()
    }
    return Sample(
        time_s=round(sample.time_s - start_s, TIME_DIGITS),
        hbspan_s=sample.hbspan_s,
        weights=weights,
    )


def _changes(samples: list[Sample]) -> list[Sample]:
    """The first sample, the last, and all that differ from the one before.

    A line of steps needs no others.
    """
    ends = (0, len(samples) - 1)
    return [
        sample
        for index, sample in enumerate(samples)
        if index in ends or sample.weights != samples[index - 1].weights
    ]


# ---- JSON that people can read and diff


def _pretty(value: Any, indent: str = "") -> str:
    """JSON with everything on one line that fits there."""
    line = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, dict | list) or len(indent) + len(line) <= LINE_CHARS:
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        keys = {key: json.dumps(key, ensure_ascii=False) for key in value}
        parts = [f"{deeper}{keys[key]}: {_pretty(each, deeper)}" for key, each in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _pretty(each, deeper) for each in value) + f"\n{indent}]"
