"""The examples of docs/rest.md, sent to a controller's operations as curl would send them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

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


def examples() -> list[Example]:
    found = []
    for line in re.findall(r"^curl .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        command, hash_, status = line.rpartition("# ")
        assert hash_, line
        text = command.replace("$URL", URL).replace("$TOKEN", TOKENS["admin"])
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
            elif word != "-N":
                assert word.startswith(URL), line
                url = word
        found.append(Example(method, url, headers, body, int(status)))
    return found


def test_the_examples_work() -> None:
    """In their order, and with the status that the page says."""

    async def ask() -> None:
        with controller() as feed:
            async with serving(made_app(feed, requests_per_s=1e6)) as client:
                for example in examples():
                    answer = await client.request(
                        example.method,
                        example.url,
                        headers=example.headers,
                        content=example.body,
                    )
                    assert answer.status_code == example.status, (example, answer.text)

    run(ask())


def test_there_is_an_example_of_each_kind() -> None:
    tags = {tag["name"] for tag in rest.openapi()["tags"]}
    seen = set()
    for path, methods in rest.openapi()["paths"].items():
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/?]+", path) + r"(\?|$)")
        for method, operation in methods.items():
            for example in examples():
                same = example.method == method.upper()
                if same and pattern.match(example.url.removeprefix(URL)):
                    seen.add(operation["tags"][0])
    assert seen == tags - {"vlans"}


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
