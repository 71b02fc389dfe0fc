# SPDX-License-Identifier: Apache-2.0
"""Pages of tables and pictures from the JSON files of the benches, and smaller such files.

One page has a section for each question, with the main figures; each measurement has a page of its
own with everything, and its file again without bulky raw data. The same files give the same pages
byte for byte, and so do the files that this writes: nothing depends on the clock, on the order of
the arguments, or on where they lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ri2n_lab.bench.report_input import Measurement, load_measurement, thin_json
from ri2n_lab.bench.report_pictures import pictures
from ri2n_lab.bench.report_questions import page
from ri2n_lab.bench.report_rows import KINDS
from ri2n_lab.bench.report_tables import detail
from ri2n_sdn.errors import BadInput

__all__ = ["PAGE", "RESULTS", "make_report", "write_report"]

PAGE = "results.md"
RESULTS = "results"


def write_report(files: Sequence[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """Write `folder`/results.md, and all else in `folder`/results; what was written, and warnings.

    Warnings are lines for people: incomplete runs, and older files in `folder`/results that this
    page does not use. Raises BadInput, and then nothing is written, for a bad file, two files of
    one name, or a folder that cannot be written.
    """
    measurements: dict[str, tuple[Path, Measurement]] = {}
    for path in files:
        measurement = load_measurement(path)
        other, known = measurements.get(measurement.name, (path, measurement))
        if known != measurement:
            raise BadInput(
                f"{path}: would be {measurement.name}.json, and so would {other}: rename one"
            )
        measurements[measurement.name] = (path, measurement)
    warnings = [
        f"{path}: the run is incomplete"
        for path, each in measurements.values()
        if not each.complete
    ]
    texts = make_report([measurement for _, measurement in measurements.values()])
    written = _write(texts, folder)
    for path in sorted((folder / RESULTS).glob("*")):
        if path.suffix in (".svg", ".json", ".md") and path not in written:
            warnings.append(f"{path}: is not part of this page")
    return written, warnings


def make_report(measurements: Sequence[Measurement]) -> dict[str, str]:
    """All files of the report, {path below the output folder: text}."""
    texts: dict[str, str] = {}
    drawn = {measurement.name: pictures(measurement) for measurement in measurements}
    for measurement in sorted(measurements, key=lambda each: (KINDS.index(each.kind), each.name)):
        for picture in drawn[measurement.name]:
            texts[f"{RESULTS}/{picture.name}.svg"] = picture.draw()
        texts[f"{RESULTS}/{measurement.name}.json"] = thin_json(measurement)
        texts[f"{RESULTS}/{measurement.name}.md"] = detail(measurement, drawn[measurement.name])
    texts[PAGE], charts = page(measurements, drawn, f"{RESULTS}/")
    for picture in charts:
        texts[f"{RESULTS}/{picture.name}.svg"] = picture.draw()
    return texts


def _write(texts: Mapping[str, str], folder: Path) -> list[Path]:
    """All under temporary names first, then renamed: a full disk leaves the old page as it was."""
    drafts: list[tuple[Path, Path]] = []
    try:
        (folder / RESULTS).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            draft = path.with_name(path.name + ".part")
            drafts.append((draft, path))
            draft.write_text(text, encoding="utf-8")
        for draft, path in drafts:
            draft.replace(path)
    except OSError as error:
        raise BadInput(f"{error.filename or folder}: {error.strerror}") from None
    finally:
        for draft, _ in drafts:
            draft.unlink(missing_ok=True)
    return [path for _, path in drafts]
