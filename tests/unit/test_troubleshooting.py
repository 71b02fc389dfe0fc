# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md has each problem of `ri2n status` and each finding of the doctors.

Problems stand in a table, and findings are read from the source. Names and numbers are words in
capitals.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from ri2n_lab.manual.texts import findings_in, rows_in
from ri2n_lab.manual.told import TROUBLESHOOTING, with_lines
from ri2n_sdn.contract.problems import PROBLEMS
from ri2n_sdn.contract.refusals import REFUSALS
from ri2n_sdn.contract.wording import fill
from tests.unit.commands import REPOSITORY

PRODUCT = REPOSITORY / "ri2n_sdn"
PAGE = TROUBLESHOOTING
# The words of the page that stand for a name or a number; all other words stand for themselves.
BLANKS = (
    *(
        "HOST:NIC",
        "ADDRESS",
        "BRIDGE",
        "CABLE",
        "DEVICE",
        "ERROR",
        "FAULT",
        "FILE",
        "FLOW",
        "HOST",
        "JOB",
    ),
    *("MAC", "N", "NAME", "NAMES", "NETWORK", "NETWORKS", "NIC", "NICS", "OTHER", "PERCENT"),
    *("PLACES", "ROUTE", "SWITCH", "TARGET", "VLANS", "WHAT", "WHY"),
)


def fits(pattern: str) -> re.Pattern[str]:
    """A line of the page as a regular expression."""
    parts = re.split(rf"\b({'|'.join(BLANKS)})\b", pattern)
    # A word in capitals may also be meant, as in "one MAC address, MAC".
    return re.compile("".join(".+?" if part in BLANKS else re.escape(part) for part in parts))


@cache
def page() -> dict[str, list[str]]:
    """The lines that people see, by the section of the page that has them."""
    found: dict[str, list[str]] = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        rows = [line.split(" | ") for line in body.splitlines() if line.startswith("| ")][2:]
        column = 1 if "doctor" in title else 0
        found[title] = [row[column].strip("| `") for row in rows]
    return found


def lines(title: str) -> list[str]:
    return [line for name, its in page().items() if name.startswith(title) for line in its]


def words(text: str) -> int:
    """How many words of a line do not stand for something else."""
    return len(re.findall(r"\b[a-z]{2,}", text))


def explained(text: str, title: str) -> bool:
    """Whether a line of the page is that text, and says more than that something is wrong."""
    return any(
        fits(line).fullmatch(text) and words(line) >= min(words(text), 1) for line in lines(title)
    )


EXAMINE = (REPOSITORY / "ovs-host-scripts" / "examine.sh").read_text(encoding="utf-8")
DOCTOR = list(findings_in(EXAMINE))
MACHINE = sorted(
    {
        (check, text)
        for name in ("doctor_controller", "doctor_machine")
        for check, text in rows_in(PRODUCT / "cli" / f"{name}.py")
        # The others are errors of the system, or what the controller says of itself.
        if len(re.findall(r"[a-z]{2,}", text)) > 1 and "?" not in text and "..." not in text
        # That it is in its group is good.
        if "is in GROUP" not in text
    }
)


def test_the_lines_are_found_in_the_source() -> None:
    assert len(DOCTOR) > 35 and len(MACHINE) > 35
    told = len(re.findall(r"\bfinding (?:bad|warning|\"\$\()", EXAMINE))
    assert len(DOCTOR) == told, "a finding is written in a way that `findings_in` does not read"


def test_each_problem_has_a_row_with_its_line_and_each_row_is_a_problem() -> None:
    """The table is the source: `python -m ri2n_lab.manual.told` writes the lines into the page."""
    text = PAGE.read_text(encoding="utf-8")
    assert with_lines(text) == text
    status = "".join(each for each in text.split("\n## ") if each.startswith("`ri2n status`"))
    rows = re.findall(r"^\| `", status, re.MULTILINE)
    codes = re.findall(r"^\| `[^`]+` \| `(\w+)` \|", status, re.MULTILINE)
    assert len(rows) == len(codes) and sorted(codes) == sorted(PROBLEMS)


@pytest.mark.parametrize(("check", "seen", "advice"), DOCTOR)
def test_each_finding_of_host_doctor_is_explained(check: str, seen: str, advice: str) -> None:
    assert explained(seen, "`host-doctor`"), f"{PAGE.name} has no line for: {check}: {seen}"


CLIENT = [
    # A page cannot show the first in code; what follows from the system has no words of its own.
    fill(REFUSALS[code].text, {"path": "FILE", "after_s": 0}).replace("`", "").replace("0 s", "N s")
    for code in ("controller_absent", "controller_for_root", "controller_late")
] + [fill(REFUSALS["controller_stranger"].text, {"path": "FILE"})]


@pytest.mark.parametrize("text", CLIENT)
def test_why_no_controller_answers_is_explained(text: str) -> None:
    assert explained(text, "A command prints one line")


@pytest.mark.parametrize(("check", "text"), MACHINE)
def test_each_finding_on_the_controllers_machine_is_explained(check: str, text: str) -> None:
    assert explained(text, "`ri2n doctor`"), f"{PAGE.name} has no line for: {check}: {text}"


def test_no_finding_of_the_page_is_made_up() -> None:
    everything = [*(seen for _, seen, _ in DOCTOR), *(text for _, text in MACHINE), *CLIENT]
    made_up = [
        line
        for title in ("`host-doctor`", "`ri2n doctor`")
        for line in lines(title)
        if not any(fits(line).fullmatch(text) for text in everything)
    ]
    assert made_up == []
