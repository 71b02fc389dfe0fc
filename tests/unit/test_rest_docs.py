# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/rest.md, sent to a controller's operations as curl would send them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from ri2n_sdn.web import rest
from tests.unit.rest_controller import controller
from tests.unit.web_app import made_app, run, serving
from tests.unit.web_state import TOKENS

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"
URL = "http://127.0.0.1:8420/api/v1"


class Example(NamedTuple):
    """One line of curl, and the status that stands behind it."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None
    status: int
    sent: bool


def examples() -> list[Example]:
    """All of the page. Those that need another cluster than the tests have are not sent."""
    found = []
    lines = re.compile(r"^(?:ETAG=\$\()?(curl .*?)\)? *# (\d+)(, .*)?$", re.MULTILINE)
    commands = lines.findall(PAGE.read_text(encoding="utf-8"))
    assert len(commands) == len(re.findall(r"^.*curl .* \$URL|^curl", PAGE.read_text(), re.M))
    for line, status, where in commands:
        text = line.replace("$URL", URL).replace("$TOKEN", TOKENS["admin"])
        words = iter(shlex.split(text)[1:])
        method, body, url = "GET", None, ""
        headers: dict[str, str] = {}
        for word in words:
            if word == "-X":
                method = next(words)
            elif word == "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            elif word == "--json":
                body = next(words)
                headers["Content-Type"] = "application/json"
            elif word in ("-o", "-w"):
                next(words)
            elif word not in ("-N", "-sS"):
                assert word.startswith(URL), line
                url = word
        found.append(Example(method, url, headers, body, int(status), not where))
    return found


def test_the_examples_work() -> None:
    """In their order, and with the status that the page says."""

    async def ask() -> None:
        etag = ""
        with controller() as feed:
            async with serving(made_app(feed, requests_per_s=1e6)) as client:
                for example in examples():
                    if not example.sent:
                        continue
                    headers = {
                        name: value.replace("$ETAG", etag)
                        for name, value in example.headers.items()
                    }
                    answer = await client.request(
                        example.method, example.url, headers=headers, content=example.body
                    )
                    assert answer.status_code == example.status, (example, answer.text)
                    if example.method == "GET":
                        etag = answer.headers.get("etag", etag)

    run(ask())


def test_there_is_an_example_of_each_kind() -> None:
    tags = {tag["name"] for tag in rest.openapi()["tags"]}
    seen, written, writes = set(), set(), set()
    for path, methods in rest.openapi()["paths"].items():
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/?]+", path) + r"(\?|$)")
        for method, operation in methods.items():
            if method != "get":
                writes.add(operation["operationId"])
            for example in examples():
                same = example.method == method.upper()
                if same and pattern.match(example.url.removeprefix(URL)):
                    seen.add(operation["tags"][0])
                    written.add(operation["operationId"])
    assert seen == tags
    assert writes and not writes - written, "each write has an example"


@pytest.mark.usefixtures("as_written")
def test_the_error_of_the_page_is_the_answer_to_the_request_above_it() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Errors")[2]
    shown = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    (example,) = [each for each in examples() if each.status == 422]

    async def ask() -> None:
        with controller() as feed:
            async with serving(made_app(feed)) as client:
                answer = await client.request(
                    example.method, example.url, headers=example.headers, content=example.body
                )
                assert shown == {key: answer.json()[key] for key in shown}, answer.text

    run(ask())


def test_the_statuses_of_the_page_are_those_of_the_document() -> None:
    documented = {
        int(status)
        for methods in rest.openapi()["paths"].values()
        for operation in methods.values()
        for status in operation["responses"]
        if status >= "400"
    }
    table = PAGE.read_text(encoding="utf-8").partition("## Errors")[2]
    listed = {
        int(n) for row in re.findall(r"^\| (\d[\d, ]+) \|", table, re.M) for n in row.split(", ")
    }
    # 405 is of no operation, and 421 is answered before REST is asked.
    assert listed - {405, 421} == documented
