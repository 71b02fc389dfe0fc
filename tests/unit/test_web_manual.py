# SPDX-License-Identifier: Apache-2.0
"""The documentation that the web process serves, and what it says where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ri2n_sdn import shipped
from ri2n_sdn.web.manual import PATH
from tests.unit.web_app import run, serving
from tests.unit.web_state import FakeFeed


def got(path: str) -> tuple[int, str, str]:
    """Status, kind and text of the answer, with redirections followed."""

    async def asked() -> tuple[int, str, str]:
        async with serving(FakeFeed()) as client:
            answer = await client.get(path, follow_redirects=True)
            return answer.status_code, answer.headers["content-type"], answer.text

    return run(asked())


def at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "_CHECKOUT", folder / "checkout")
    monkeypatch.setattr(shipped, "_SHARE", folder / "share")


@pytest.mark.parametrize("where", ["checkout", "share"])
def test_a_site_is_served(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at(tmp_path, monkeypatch)
    site = tmp_path / where / "site"
    site.mkdir(parents=True)
    (site / "index.html").write_text("<p>index", encoding="utf-8")
    (site / "alerts.html").write_text("<p>alerts", encoding="utf-8")
    (tmp_path / where / "secret").write_text("secret", encoding="utf-8")
    assert got(PATH) == (200, "text/html; charset=utf-8", "<p>index")
    assert got(f"{PATH}/alerts.html")[2] == "<p>alerts"
    for path in ("nosuch.html", "..%2fsecret", "%2e%2e/secret"):
        assert got(f"{PATH}/{path}")[0] == 404


def test_without_a_site_a_link_of_an_alert_says_where_the_page_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(tmp_path, monkeypatch)
    assert shipped.documentation() is None
    status, kind, text = got(f"{PATH}/alerts.html")
    assert (status, kind) == (404, "text/plain; charset=utf-8")
    assert "ri2n-web" in text and "./dev docs" in text and "docs/NAME.md" in text
