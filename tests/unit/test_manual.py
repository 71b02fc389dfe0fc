# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: its navigation, its links, and the pages that are generated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ri2n_lab.manual import reference
from ri2n_lab.manual.links import anchors_of, broken_links, links_in, slug
from ri2n_lab.manual.rest import rest_page
from ri2n_sdn.contract.operations import OPERATIONS
from tests.unit.commands import REPOSITORY, ri2n


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without the Python names in it."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, tag, node: tag)


def configuration() -> Any:
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=_Loader)  # a subclass of the safe one


# ---- Links


def test_links_are_read_as_people_see_them() -> None:
    text = "\n".join(
        (
            "# A `b` & c: d_e",
            "[x](a.md), ![p](p.svg), [y [z]](b.md#t-u), [w](#v) `[no](no.md)`",
            "```sh",
            "# no heading, [no](no.md)",
            "```",
            "## Twice",
            "## Twice",
            '[out](https://example.org/a_(b)), [t](<c.md> "title")',
        )
    )
    found = [(link.path, link.anchor, link.external) for link in links_in(text)]
    assert found[:4] == [
        ("a.md", "", False),
        ("p.svg", "", False),
        ("b.md", "t-u", False),
        ("", "v", False),
    ]
    assert found[-1] == ("c.md", "", False)
    assert anchors_of(text) == {"a-b--c-d_e", "twice", "twice-1"}
    assert slug("What happens when ...") == "what-happens-when-"


def test_a_link_to_no_file_and_to_no_heading_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# Here\n")
    page = tmp_path / "a.md"
    page.write_text("# Top\n[1](b.md#here) [2](b.md#there) [3](c.md) [4](#top) [5](#bottom)\n")
    assert broken_links(page, {}) == ["b.md#there", "c.md", "#bottom"]


# ---- Navigation


def named_in(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [path for entry in inner for path in named_in(entry)]


def test_the_navigation_names_pages_that_are_there_once() -> None:
    named = named_in(configuration()["nav"])
    assert len(named) == len(set(named))
    missing = [
        path
        for path in named
        if not path.startswith("project/") and not (REPOSITORY / "docs" / path).is_file()
    ]
    assert not missing
    assert named[0] == "index.md"


def test_the_site_asks_no_other_server() -> None:
    settings = configuration()
    assert settings["theme"]["font"] is False and settings["strict"] is True
    assert not {"extra_css", "extra_javascript", "repo_url"} & set(settings)


def test_each_page_says_first_for_whom_it_is() -> None:
    """Not the results, which `ri2n bench report` writes, nor each decision: their list says it."""
    silent = []
    for path in named_in(configuration()["nav"]):
        if path in ("index.md", "results.md") or re.match(r"project/|decisions/\d", path):
            continue
        text = (REPOSITORY / "docs" / path).read_text(encoding="utf-8")
        first = text.split("\n\n")[1].replace("\n", " ")
        if not re.match(r"\W*(This page is for|These commands are for|For) ", first):
            silent.append(path)
    assert silent == []


def test_the_glossary_has_each_word_once() -> None:
    text = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([^|]+?) \|", text, flags=re.M)
    words = [word for row in words for word in row.split(", ") if word not in ("word", "---")]
    assert len(words) > 90 and len(words) == len(set(words))


# ---- Generated pages


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[str, str]]:
    return reference.pages()


def test_each_command_and_option_is_in_the_reference(made: dict[str, tuple[str, str]]) -> None:
    text = made["reference/commands.md"][1]
    for words in (("controller",), ("job", "begin"), ("vlan", "switch-config"), ("lab", "fault")):
        assert f"\n## ri2n {' '.join(words)}\n" in text
        options = re.findall(r" (--[a-z][a-z-]+)", ri2n(*words, "--help", COLUMNS="250").stdout)
        assert len(options) > 1
        part = text.partition(f"\n## ri2n {' '.join(words)}\n")[2].partition("\n## ")[0]
        assert [name for name in options if f"{name}" not in part and name != "--help"] == []


def test_each_key_of_cluster_yaml_is_in_the_reference(made: dict[str, tuple[str, str]]) -> None:
    text = made["reference/cluster-yaml.md"][1]
    for key in ("strategy", "hbspan_s.min", "hosts.NAME.nics.NAME.rate_bps", "by_flows[].dscp"):
        assert f"| `{key}` |" in text
    assert "| `slots` | `16`, `32`, `64`, `128`, `256` | `64` |" in text


def test_each_operation_says_what_it_does_and_for_whom(made: dict[str, tuple[str, str]]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \| (.*) \|$", *at(made), flags=re.M)
    by_name = {name: rest for name, *rest in rows}
    assert len(by_name) > 25 and by_name.keys() == OPERATIONS.keys()
    assert [name for name, (_, _, _, does) in by_name.items() if len(does) < 15] == []
    assert by_name["job_end"][:3] == ["all", "user, on what is the user's own", "`id`"]
    assert by_name["token_add"][1] == "admin" and "`hash`" in by_name["token_add"][2]
    assert by_name["pairs"][1] == "viewer" and "`offset`, `limit`" in by_name["pairs"][2]


def at(made: dict[str, tuple[str, str]]) -> tuple[str]:
    return (made["reference/operations.md"][1],)


def test_events_are_in_the_reference(made: dict[str, tuple[str, str]]) -> None:
    text = made["reference/events.md"][1]
    for event in ("HOST disconnected", "HOST: NIC is down", "in charge from now on"):
        assert f"| `{event}` |" in text


def test_rest_has_each_path_and_each_schema_with_a_link() -> None:
    problem = {
        "description": "wrong",
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        },
    }
    item = {"$ref": "#/components/schemas/Host"}
    listed = {
        "tags": ["fabric"],
        "description": "The hosts.",
        "security": [{"token": []}, {}],
        "parameters": [
            {
                "name": "limit",
                "in": "query",
                "required": False,
                "schema": {"type": "integer", "minimum": 1, "maximum": 500, "default": 100},
                "description": "so many | at most",
            }
        ],
        "responses": {
            "200": {
                "description": "Successful Response",
                "content": {"application/json": {"schema": {"type": "array", "items": item}}},
            },
            "422": problem,
        },
    }
    removed = {
        "tags": ["fabric"],
        "description": "Forget a host.",
        "security": [{"token": []}],
        "responses": {"204": {"description": "it is forgotten"}, "422": problem},
    }
    text = rest_page(
        {
            "info": {"description": "All about it."},
            "servers": [{"url": "/api/v1"}],
            "tags": [{"name": "fabric", "description": "Hosts and NICs."}],
            "paths": {"/hosts": {"get": listed}, "/hosts/{host}": {"delete": removed}},
            "components": {
                "schemas": {
                    "Host": {"properties": {"name": {"type": "string"}}, "required": ["name"]},
                    "Problem": {"properties": {"status": {"type": "integer"}}},
                }
            },
        }
    )
    parts = text.split("\n### ")
    assert [part.splitlines()[0] for part in parts[1:]] == [
        "GET /hosts",
        "DELETE /hosts/{host}",
        "Host",
        "Problem",
    ]
    assert "| 422 | [Problem](#problem) | wrong |" in parts[0], "usual answers stand at the top"
    assert (
        "| `limit` | query | integer, 1 to 500, default `100` | so many \\| at most |" in parts[1]
    )
    assert "| 200 | list of [Host](#host) |" in parts[1] and "without one" in parts[1]
    assert "422" not in parts[1] + parts[2]
    assert "| 204 | it is forgotten |" in parts[2] and "A token is needed" in parts[2]
    assert "| `name` (needed) | string |" in parts[3]


@pytest.mark.long
def test_the_site_builds_and_everything_in_it_is_local(tmp_path: Path) -> None:
    """Strict: a broken link of any page is an error. So is an anchor that is not there."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 60 and (tmp_path / "site" / "search" / "search_index.json").is_file()
    foreign = re.compile(
        r"<(?:script|img|iframe|source)[^>]* src=\"?(?:https?:)?//[^>]*>"
        r"|<link[^>]* href=\"?(?:https?:)?//[^>]*rel=\"?(?:stylesheet|preconnect|preload)[^>]*>"
        r"|<link[^>]*rel=\"?(?:stylesheet|preconnect|preload)[^>]* href=\"?(?:https?:)?//[^>]*>"
    )
    assert {
        page.name: found for page in pages if (found := foreign.findall(page.read_text()))
    } == {}
    for sheet in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text())
