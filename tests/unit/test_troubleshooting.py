"""docs/troubleshooting.md has each line of `ri2n status` and each finding of host-doctor.

The lines are read from the source. Names and numbers in them are words in capitals, there as here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace

import pytest

from ri2n_lab.manual.texts import calls_in, findings_in, rows_in, texts_in
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.weights.losses import Loss
from tests.problem_texts import problem_texts
from tests.unit.commands import REPOSITORY
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.test_problems import REFUSED

PRODUCT = REPOSITORY / "ri2n_sdn"
PAGE = REPOSITORY / "docs" / "troubleshooting.md"
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


def part_of(text: str) -> re.Pattern[str]:
    """A text of the source as a regular expression, to be found within a line of the page."""
    pieces = re.split(r"[A-Z][A-Z0-9_]*(?![A-Za-z])", text)
    return re.compile(".+?".join(re.escape(piece) for piece in pieces).strip())


def status_texts() -> Iterator[str]:
    """All lines that `ri2n status` may show, and parts of such lines."""
    apps = PRODUCT / "apps"
    for name in ("problems", "job_state"):
        for _, text in calls_in(apps / f"{name}.py", "Problem", 1):
            if words(text):
                yield text
    for path in sorted(apps.glob("*.py")):
        for _, what in calls_in(path, "contain_host_fault", 1):
            yield f"HOST: {what}: ERROR"
        for _, what in calls_in(path, "contain_cluster_fault", 0):
            yield f"{what}: ERROR"
        for what in re.findall(r"cluster\.faults\[\"([^\"]+)\"\] = ", path.read_text("utf-8")):
            yield f"{what}: ERROR"


def parts_of_texts() -> Iterator[str]:
    """Texts that are shown inside of other ones."""
    jobs = PRODUCT / "apps" / "job_state.py"
    advice = {text for _, text in calls_in(jobs, "Problem", 2)}
    yield from set(texts_in(jobs, "problems")) - advice
    for function in ("name_fault", "certificate_fault", "own_fault", "refusal"):
        yield from texts_in(PRODUCT / "apps" / "identity.py", function)
    for function in ("_lost", "_place"):
        yield from texts_in(PRODUCT / "apps" / "problems.py", function)
    causes = PRODUCT / "discovery" / "fault_causes.py"
    yield from (text for text in texts_in(causes, "in_words", least=1) if words(text))


STATUS = sorted(set(status_texts()))
PARTS = sorted(set(parts_of_texts()))
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
    assert len(STATUS) > 35 and len(PARTS) > 10 and len(DOCTOR) > 35
    assert len(MACHINE) > 35
    assert "NAME is not connected" in STATUS
    told = len(re.findall(r"\bfinding (?:bad|warning|\"\$\()", EXAMINE))
    assert len(DOCTOR) == told, "a finding is written in a way that `findings_in` does not read"


@pytest.mark.parametrize("text", STATUS)
def test_each_line_of_status_is_explained(text: str) -> None:
    assert explained(text, "`ri2n status`"), f"{PAGE.name} has no line for: {text}"


@pytest.mark.parametrize("text", PARTS)
def test_each_part_of_a_line_of_status_is_explained(text: str) -> None:
    assert any(part_of(text).search(line) for line in lines("`ri2n status`")), text


@pytest.mark.parametrize(("check", "seen", "advice"), DOCTOR)
def test_each_finding_of_host_doctor_is_explained(check: str, seen: str, advice: str) -> None:
    assert explained(seen, "`host-doctor`"), f"{PAGE.name} has no line for: {check}: {seen}"


CLIENT = [
    text.replace("`", "")  # which a page cannot show in code
    for function in ("_asking", "_stranger")
    for text in texts_in(PRODUCT / "client.py", function)
    if words(text)
]


@pytest.mark.parametrize("text", CLIENT)
def test_why_no_controller_answers_is_explained(text: str) -> None:
    assert explained(text, "A command prints one line")


@pytest.mark.parametrize(("check", "text"), MACHINE)
def test_each_finding_on_the_controllers_machine_is_explained(check: str, text: str) -> None:
    assert explained(text, "`ri2n doctor`"), f"{PAGE.name} has no line for: {check}: {text}"


def test_no_line_of_the_page_is_made_up() -> None:
    """Each fits a text of the source; one of jobs and refusals is put together of several."""
    everything = [
        *STATUS,
        *(seen for _, seen, _ in DOCTOR),
        *(text for _, text in MACHINE),
        *CLIENT,
    ]
    made_up = [
        line
        for title in ("`ri2n status`", "`host-doctor`", "`ri2n doctor`")
        for line in lines(title)
        if not any(fits(line).fullmatch(text) for text in everything)
        and not any(words(part) and part_of(part).search(line) for part in PARTS)
    ]
    assert made_up == []


def cluster() -> Cluster:
    return cluster_of({"A": FakeChannel(), "B": FakeChannel()})


def test_what_status_says_of_a_sick_cluster_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lines as they come, with names and numbers in them."""
    ill = cluster()
    a, b = ill.members["A"], ill.members["B"]
    a.channel, b.mac, a.repairs = None, a.mac, 3
    ill.members["B"].taps = {254: False, 255: False}
    lost = (Loss(("A:1>",), 0.07), Loss(("A:2>", ">B:1"), 0.04))
    monkeypatch.setattr(ill.measured, "losses", SimpleNamespace(losses=lost))
    ill.faults["not reloaded"] = "cluster.yaml: slots: must be 16"
    for _, text, cure in REFUSED:
        ill.refusals.note(text, f"{text}: {cure}")
    texts = problem_texts(ill)
    assert len(texts) >= 9
    assert [text for text in texts if not explained(text, "`ri2n status`")] == []
