# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser never say what is not so: figures agree, and what is old says so."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from ri2n_sdn.contract.fair import fair_entry
from ri2n_sdn.contract.units import FACTORS, ago_text
from ri2n_sdn.web.gui import PAGES
from tests.unit.web_state import cluster_state

from .browser import CHROMIUM, LONG_MS, FakeController, Visit, browser, serving
from .gui_answers import ANSWERS

__all__ = ["browser"]

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="needs Chromium: apt install chromium"
)

expect.set_options(timeout=LONG_MS)

HOSTS = ("h0001", "h0002", "h0003", "h0004")
NICS = ("eth0", "eth1")
NIC_BPS = 10**9
FAIR_BPS = 5 * 10**8
ROUND_S = 0.3
PHONE = {"width": 390, "height": 844}

# What stands in the tables with these names, and on the page, once nothing has changed for a
# moment: while a page is being changed, one part is there before the other.
_AT_REST = """
async (names) => {
  await new Promise((done) => {
    let timer = setTimeout(done, 250);
    new MutationObserver((changes) => {
      if (changes.every((each) => each.target.closest?.(".ago"))) return;
      clearTimeout(timer);
      timer = setTimeout(done, 250);
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  const cells = (part) => {
    const heads = [...part.querySelectorAll("thead th")].map((e) => e.textContent.trim());
    return [...part.querySelectorAll("tbody tr")].map((row) => Object.fromEntries(
      [...row.children].map((cell, place) => [heads[place], cell.textContent.trim()])));
  };
  const found = names.map((name) =>
    [name, cells(document.querySelector(`section[aria-label="${name}"]`))]);
  const notes = [...document.querySelectorAll("svg.net text.nic")].map((e) => e.textContent);
  const said = document.querySelector(".content").innerText;
  return { ...Object.fromEntries(found), notes, said };
}
"""

# Whether any part reaches beyond the page, or is cut off where it would have to be scrolled to.
_CUT_OFF = """
() => [...document.querySelectorAll(".content *, header *")].filter((e) => {
  if (!e.checkVisibility({ visibilityProperty: true, opacityProperty: true })) return false;
  if (e.closest("svg, [aria-hidden=true], .skip, thead, input, .q-field__control")) return false;
  const box = e.getBoundingClientRect();
  if (box.width === 0 || box.height === 0) return false;
  const style = getComputedStyle(e);
  const hides = style.overflowX !== "visible" && e.scrollWidth > e.clientWidth + 1;
  return box.right > innerWidth + 1 || box.left < -1 || hides;
}).map((e) => e.outerHTML.slice(0, 160))
"""


class Cluster:
    """A fake controller whose pairs, hosts and NICs carry the same traffic in every round."""

    def __init__(self, folder: Path) -> None:
        state = cluster_state(len(HOSTS), len(NICS))
        state["problems"], state["events"] = {}, []
        answers = {**ANSWERS, "pairs": self._pairs, "parameters": {"parameters": []}}
        answers |= {"job_history": {"jobs": []}}
        self.controller = FakeController(folder, state, answers)
        self._chance = random.Random(7)
        self._round: tuple[float, dict[tuple[str, str, str], float]] = (0.0, {})

    def round(self) -> None:
        """Let all pairs send something else, and tell of it."""
        # Of a NIC with three receivers, each gets a third at most, so that the pairs fit.
        paths = {
            (src, dst, nic): self._chance.random() * NIC_BPS / 3
            for src in HOSTS
            for dst in HOSTS
            for nic in NICS
            if src != dst
        }
        now_s = time.time()
        rates: dict[str, dict[str, list[float]]] = {
            host: {nic: [0.0, 0.0] for nic in NICS} for host in HOSTS
        }
        for (src, dst, nic), rate_bps in paths.items():
            rates[src][nic][0] += rate_bps
            rates[dst][nic][1] += rate_bps
        fair = {
            src: fair_entry(
                (dst, sum(paths[src, dst, nic] for nic in NICS), FAIR_BPS)
                for dst in HOSTS
                if dst != src
            )
            for src in HOSTS
        }
        self._round = now_s, paths
        facts = {**self.controller.state["controller"], "sampled_s": now_s}
        self.controller.change({"rates": rates, "fair": fair, "controller": facts})

    @contextlib.contextmanager
    def rounds(self) -> Iterator[None]:
        """Have one round after the other, meanwhile."""
        done = threading.Event()

        def work() -> None:
            while not done.wait(ROUND_S):
                self.round()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _pairs(self, request: dict[str, Any]) -> dict[str, Any]:
        sampled_s, rates = self._round
        pairs = [
            {
                **{"src": src, "dst": dst, "active": True, "striped": False, "group": 1},
                **{"tx_bps": sum(rates[src, dst, nic] for nic in NICS), "fair_bps": FAIR_BPS},
                "paths": [
                    {
                        **{"own": nic, "peer": nic, "network": f"n{place}", "vlan": None},
                        **{"alive": True, "share": 0.5, "slots": 32, "rate_bps": None},
                        **{"tx_bps": rates[src, dst, nic], "rx_bps": 0.0},
                        **{"speed_bps": NIC_BPS, "link": None, "helper": None},
                    }
                    for place, nic in enumerate(NICS)
                ],
            }
            for src in HOSTS
            for dst in HOSTS
            if src != dst
            and request.get("src") in (None, src)
            and request.get("dst") in (None, dst)
        ]
        if request.get("sort") == "rate":
            pairs.sort(key=lambda pair: -float(str(pair["tx_bps"])))
        return {"pairs": pairs, "total": len(pairs), "offset": 0, "sampled_s": sampled_s}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("gui"))
    with made.controller:
        yield made


@pytest.fixture(autouse=True)
def _a_round(cluster: Cluster) -> None:
    """No figures are old when a test begins."""
    cluster.round()


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> Iterator[str]:
    folder = cluster.controller.socket.parent
    with serving(cluster.controller.socket, folder / "web.log") as address:
        yield address


def at_rest(page: Page, *names: str) -> dict[str, Any]:
    """By the name of a table its rows, which have texts by heads; what is `said` on the page."""
    found: dict[str, Any] = page.evaluate(_AT_REST, list(names))
    return found


def rows(page: Page, name: str) -> list[dict[str, str]]:
    """The rows of a table."""
    found: list[dict[str, str]] = at_rest(page, name)[name]
    return found


def bps(said: str) -> float:
    """The rate that a page writes."""
    number, unit = re.fullmatch(r"([0-9.]+) ([kMGT]?)bit/s", said.strip()).groups()  # type: ignore[union-attr]
    return float(number) * FACTORS[unit]


def near(one: float, other: float) -> bool:
    """Whether two rates are equal but for what rounding to three digits takes away."""
    return one == pytest.approx(other, rel=0.02)


# ---- All figures of a page are of one round


def test_the_pairs_of_a_host_add_up_to_the_host_while_all_rates_change(
    cluster: Cluster, url: str, browser: Browser
) -> None:
    with Visit(browser, url) as visit, cluster.rounds():
        page = visit.go("/traffic?src=h0001&dst=h0002")
        part = page.get_by_role("region", name="Paths", exact=True)
        part.get_by_text("eth1 to eth1").wait_for()
        seen: set[tuple[str, ...]] = set()
        while len(seen) < 4:
            found = at_rest(page, "Hosts", "Pairs", "Paths")
            hosts = {row["Host"]: row for row in found["Hosts"]}
            seen.add(tuple(row["Sends"] for row in hosts.values()))
            pairs = {(row["Sender"], row["Receiver"]): bps(row["Rate"]) for row in found["Pairs"]}
            assert len(hosts) == len(HOSTS) and len(pairs) == 12
            for name, row in hosts.items():
                sends = sum(rate for (src, _), rate in pairs.items() if src == name)
                gets = sum(rate for (_, dst), rate in pairs.items() if dst == name)
                assert near(bps(row["Sends"]), sends) and near(bps(row["Receives"]), gets), found
                part_of_fair = float(row["Part of what is fair"].removesuffix(" %"))
                assert part_of_fair == pytest.approx(100 * sends / (3 * FAIR_BPS), abs=1)
            paths = [bps(path["Rate"]) for path in found["Paths"]]
            assert near(pairs["h0001", "h0002"], sum(paths)), found
            for path, rate_bps in zip(found["Paths"], paths, strict=True):
                assert rate_bps <= bps(path["NIC's rate"]) == NIC_BPS
                assert path["Planned rate"] == "-"
            now = re.search(r"all hosts ([0-9.]+ \w+/s) now", found["said"])
            assert now is not None
            assert near(bps(now[1]), sum(bps(row["Sends"]) for row in hosts.values())), found


def test_the_rates_on_the_lines_add_up_to_the_rows_and_fit_their_nics(
    cluster: Cluster, url: str, browser: Browser
) -> None:
    with Visit(browser, url) as visit, cluster.rounds():
        page = visit.go("/")
        page.get_by_text("of what is fair,").wait_for()
        seen: set[tuple[str, ...]] = set()
        while len(seen) < 4:
            found = at_rest(page, "Hosts")
            assert len(found["Hosts"]) == len(HOSTS)
            seen.add(tuple(row["Sends"] for row in found["Hosts"]))
            for place, row in enumerate(found["Hosts"]):
                of_host = [note.split() for note in found["notes"][2 * place : 2 * place + 2]]
                for at, head in ((1, "Sends"), (2, "Receives")):
                    nics = [bps(f"{note[at][1:-1]} {note[at][-1]}bit/s") for note in of_host]
                    assert max(nics) <= NIC_BPS and near(sum(nics), bps(row[head])), (row, of_host)


# ---- What is old


def test_with_a_dead_controller_each_page_is_grey_and_says_its_age(
    cluster: Cluster, url: str, browser: Browser
) -> None:
    with Visit(browser, url) as visit:
        page = visit.go("/")
        expect(page.locator(".age")).to_contain_text("Figures read")
        expect(page.locator("table.hosts")).to_contain_text("good")
        cluster.controller.stop()
        try:
            expect(page.locator(".content.stale .age")).to_contain_text("As of")
            for path in (each.path for each in PAGES):
                page = visit.go(path)
                expect(page.locator(".content.stale .age")).to_have_text(
                    re.compile(r"As of (now|\d+ (s|min) ago)")
                )
                assert _coloured(page) == [], path
            page = visit.go("/")
            states = [row["State"] for row in rows(page, "Hosts")]
            assert states == ["was good"] * len(HOSTS)
            page = visit.go("/traffic")
            expect(
                page.get_by_text("Mbit/s last").or_(page.get_by_text("Gbit/s last"))
            ).to_be_visible()
            assert "work" not in {row["NICs"].split()[-1] for row in rows(page, "Hosts")}
            said = page.locator(".content").inner_text()
            assert "/s now" not in said and "gets" not in said
        finally:
            cluster.controller.start()
        expect(page.locator(".content.stale")).to_have_count(0)
        cluster.round()
        expect(page.locator(".age")).to_contain_text("Figures read")


def _coloured(page: Page) -> list[str]:
    """Which parts below the banner have a colour that only what is true now may have."""
    found: list[str] = page.evaluate(
        """() => {
          const colours = ["--heat-1", "--heat-2", "--heat-3", "--heat-4", "--bad", "--good"];
          const probe = document.body.appendChild(document.createElement("i"));
          const live = new Set(colours.map((name) => {
            probe.style.color = `var(${name})`;
            return getComputedStyle(probe).color;
          }));
          probe.remove();
          const below = ".content > :not(.banner)";
          return [...document.querySelectorAll(`${below}, ${below} *`)]
            .filter((e) => e.checkVisibility())
            .filter((e) => e.closest("svg.net")
              ? live.has(getComputedStyle(e).stroke) || live.has(getComputedStyle(e).fill)
              : live.has(getComputedStyle(e).color))
            .map((e) => e.outerHTML.slice(0, 120));
        }"""
    )
    return found


def test_figures_that_nobody_reads_get_old_while_the_controller_is_there(
    browser: Browser, tmp_path: Path
) -> None:
    """As where a controller hangs, or another one is in charge. Nothing is said meanwhile."""
    made = Cluster(tmp_path)
    with made.controller, serving(made.controller.socket, tmp_path / "web.log") as url:
        made.round()
        with Visit(browser, url) as visit:
            page = visit.go("/")
            expect(page.locator(".age")).to_contain_text("Figures read")
            expect(page.locator(".content.stale .age")).to_contain_text("As of")
            expect(page.locator(".banner")).to_contain_text("has read no counters since")
            made.round()
            expect(page.locator(".banner")).to_contain_text("No problem is known")


def test_the_browser_tells_ages_in_the_servers_words(url: str, browser: Browser) -> None:
    with Visit(browser, url) as visit:
        page = visit.go("/events")
        for age_s in (30, 150, 7_300, 200_000):
            page.evaluate(
                """(ageS) => {
                  const part = document.createElement("time");
                  part.className = "ago";
                  part.id = `age-${ageS}`;
                  const nowS = Number(document.getElementById("content").dataset.nowS);
                  part.dataset.timeS = nowS - ageS;
                  document.body.append(part);
                }""",
                age_s,
            )
            shown = page.locator(f"#age-{age_s}")
            number, unit, _ = ago_text(age_s).split()
            expect(shown).to_have_text(
                re.compile(rf"^{number if age_s > 60 else '3[0-9]'} {unit} ago$")
            )


# ---- Rows stand still


@pytest.mark.parametrize(
    ("name", "key", "rates_in"),
    [("Hosts", "Host", ("Sends", "Receives")), ("Pairs", "Sender", ("Rate",))],
)
def test_rows_keep_their_places_until_they_are_sorted_again(
    cluster: Cluster, url: str, browser: Browser, name: str, key: str, rates_in: tuple[str, ...]
) -> None:
    with Visit(browser, url) as visit:
        page = visit.go("/traffic")
        part = page.get_by_role("region", name=name, exact=True)
        part.get_by_role("button", name="Show").first.wait_for()
        part.get_by_label(f"Order of {name.lower()}").click()
        page.get_by_role("option", name="Highest rate first").click()
        again = part.get_by_role("button", name="Sort again")

        def look() -> tuple[list[tuple[str, str]], tuple[float, ...]]:
            found = rows(page, name)
            return [(row[key], row.get("Receiver", "")) for row in found], tuple(
                max(bps(row[column]) for column in rates_in) for row in found
            )

        before, first = look()
        assert list(first) == sorted(first, reverse=True) and len({*before}) == len(before)
        seen = {first}
        with cluster.rounds():
            while len(seen) < 4:
                order, rates = look()
                assert order == before
                seen.add(rates)
        expect(again).to_be_enabled()
        again.click()
        expect(again).to_be_disabled()
        order, rates = look()
        assert order != before and list(rates) == sorted(rates, reverse=True)


# ---- A phone


@pytest.mark.parametrize("path", [*(each.path for each in PAGES), "/login", "/?host=h0002"])
def test_nothing_is_cut_off_on_a_phone(
    cluster: Cluster, url: str, browser: Browser, path: str
) -> None:
    with Visit(browser, url, viewport=PHONE) as visit:
        if path in ("/jobs", "/settings"):
            visit.log_in("admin")
        page = visit.go(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert page.evaluate(_CUT_OFF) == []


def test_a_phone_shows_hosts_as_cards_with_what_to_do_first(
    cluster: Cluster, url: str, browser: Browser
) -> None:
    trouble = {
        **{"code": "nic_no_link", "subject": {"host": "h0002", "nic": "eth1"}, "args": {}},
        **{"severity": "bad", "text": "h0002:eth1 has no link", "advice": "look at it", "rank": 0},
    }
    with Visit(browser, url, viewport=PHONE) as visit:
        page = visit.go("/")
        try:
            cluster.controller.change({"problems": {"k": trouble}})
            card = page.locator("table.hosts tbody tr", has_text="h0002")
            expect(card).to_contain_text("Look at it.")
            tops = {
                name: card.get_by_text(name, exact=True).bounding_box()["y"]  # type: ignore[index]
                for name in ("h0002", "Look at it.", "good")
            }
            assert tops["h0002"] < tops["Look at it."] < tops["good"]
            line = page.locator(".banner .line.bad")
            expect(line).to_contain_text("look at it")
            cure, what = (
                line.get_by_text(said).bounding_box() for said in ("look at it", "no link")
            )
            assert cure is not None and what is not None and cure["y"] < what["y"]
            label = (
                card.locator("td").nth(0).evaluate("e => getComputedStyle(e, '::before').content")
            )
            assert label == '"State"'
        finally:
            cluster.controller.change({"problems": {"k": None}})
