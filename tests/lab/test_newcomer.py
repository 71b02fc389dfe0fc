# SPDX-License-Identifier: Apache-2.0
"""A newcomer's way through README.md, as written, in a terminal and a browser, with its seconds.

A command or the name of a page, field or button that README.md does not have is a failure. The
environment may say more:

* RI2N_NEWCOMER_CLONE=1: all is done in a fresh clone of the last commit, so set-up is timed, too.
* RI2N_NEWCOMER_PICTURES=FOLDER: the pictures of docs/newcomer.md are made there.

Two things differ from what a newcomer does. root needs no `sudo`, so it is left out. Labs are
recorded in a folder of their own, so that other tests' labs are not in the way.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from ri2n_sdn.client import DEFAULT_SOCKET
from tests.sandbox.browser import CHROMIUM, LONG_MS, Visit, browsing

from .conftest import PATIENCE_S, WaitUntil
from .guide import Guide, Step, Terminal
from .test_lab import remains

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 3600.0
"""A limit against hanging: the acceptance is ten minutes, which the printed seconds show."""

MAX_BYTES = 200_000
WINDOW: dict[str, Any] = {
    "viewport": {"width": 1200, "height": 780},
    "color_scheme": "light",
    "reduced_motion": "reduce",
}
STRATEGY = "ri2n_plus_plus"
DATA_BPS = 1e6
"""Heartbeats and statistics alone are far below this rate."""

DATA = re.compile(r"^\d.* Mbit/s$")
"""A rate of at least DATA_BPS, as pages show it."""


@dataclass
class Watch:
    """How many seconds each step took, in order."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last_s: float = field(default_factory=time.monotonic)

    def done(self, step: str) -> None:
        """A step has ended, and the next one begins."""
        now_s = time.monotonic()
        self.seconds[step] = round(now_s - self._last_s, 1)
        self._last_s = now_s


class Pictures:
    """The pictures of the steps, numbered in order."""

    def __init__(self, folder: Path, browser: Browser) -> None:
        self._folder, self._browser, self._number = folder, browser, 0

    def of_page(self, page: Page, name: str) -> None:
        """What the browser shows."""
        page.evaluate("document.fonts.ready")
        self._number += 1
        file = self._folder / f"newcomer-{self._number}-{name}.png"
        page.screenshot(path=file)
        assert 0 < file.stat().st_size < MAX_BYTES, file

    def of_terminal(self, text: str, name: str) -> None:
        """What a terminal shows."""
        context = self._browser.new_context(viewport={"width": 900, "height": 200})
        try:
            page = context.new_page()
            page.set_content(
                "<body style='margin:0;background:#14181c;color:#e4e8ec'>"
                "<pre style='margin:0;padding:16px;font:14px/1.3 monospace'></pre></body>"
            )
            page.locator("pre").evaluate("(pre, text) => { pre.textContent = text; }", text.strip())
            height = page.locator("pre").evaluate("pre => pre.offsetHeight")
            page.set_viewport_size({"width": 900, "height": int(height)})
            self.of_page(page, name)
        finally:
            context.close()


@dataclass
class Desk:
    """Where the newcomer works: a checkout, and the environment of both terminals."""

    folder: Path
    guide: Guide
    watch: Watch
    labs: Path
    temporary: Path
    environment: dict[str, str]

    def second_terminal(self, command: str) -> str:
        """What a command of README.md says. `ri2n status` exits with 1 or 2 when it warns."""
        done = subprocess.run(
            ["bash", "-c", plain(command)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0 or "ri2n status" in command, (command, done)
        assert "Traceback" not in done.stderr, done
        return done.stdout


def plain(command: str) -> str:
    """The command as root gives it."""
    return re.sub(r"^sudo ", "", command)


@contextmanager
def desk() -> Iterator[Desk]:
    """This checkout, or a fresh clone of it, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="rn-", dir="/tmp") as made:
        base, watch = Path(made), Watch()
        folder, labs, temporary = base / "clone", base / "ri2n-lab", base / "tmp"
        temporary.mkdir()
        if os.environ.get("RI2N_NEWCOMER_CLONE"):
            subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True, timeout=LIMIT_S)
        else:
            folder = ROOT
        # The commands find their Python packages as a newcomer's do.
        away = ("PYTHONPATH", "VIRTUAL_ENV", "RI2N_SOCKET")
        environment = {key: value for key, value in os.environ.items() if key not in away}
        environment |= {
            "RI2N_LAB_ROOT": str(labs),
            "TMPDIR": str(temporary),
            "TERM": "dumb",
            "COLUMNS": "100",
        }
        guide = Guide(folder / "README.md")
        watch.done("git clone" if folder != ROOT else "checkout")
        yield Desk(folder, guide, watch, labs, temporary, environment)


def test_the_readme_has_the_whole_way() -> None:
    guide = Guide(ROOT / "README.md")
    guide.command("./dev demo")
    guide.command("ri2n status")
    assert [step.number for step in guide.steps()] == [1, 2, 3, 4]
    with pytest.raises(AssertionError, match="no-such-command"):
        guide.command("no-such-command")
    with pytest.raises(AssertionError, match="Log out"):
        guide.steps()[0].name("Log out")


def follow(page: Page, step: Step, name: str) -> None:
    """Follow the link with a name that the step has, and wait until the page is live."""
    page.get_by_role("link", name=step.name(name), exact=True).click()
    page.get_by_role("heading", name=name, level=1).wait_for()
    page.wait_for_function("window.socket?.connected && window.did_handshake")


def row_of(page: Page, table: str, name: str) -> Locator:
    """The row of a host in a table."""
    rows = page.get_by_role("region", name=table, exact=True).locator("tbody tr")
    return rows.filter(has=page.get_by_role("cell", name=name, exact=True))


def sends_of(page: Page, host: str) -> Locator:
    """What a host sends, in the table of the page of traffic."""
    return row_of(page, "Hosts", host).locator("td").nth(1)


def cable_of(page: Page, host: str, nic: str) -> Locator:
    """The line of a NIC in the picture of the network."""
    dots = page.locator("circle.dot").filter(
        has=page.locator("title", has_text=re.compile(rf"^{host} \S*{nic}$"))
    )
    name = dots.get_attribute("id")
    assert name is not None
    return page.locator(f"#{name.replace('-d', '-l')}")


def fine(host: str) -> re.Pattern[str]:
    """The name of a host in the picture of the network that has nothing wrong.

    Of a host that sends, it says what the host gets of what is fair.
    """
    return re.compile(rf"^host {host}(: \d+% of fair)?$")


def is_red(line: Locator) -> bool:
    """Whether it is drawn in red, to the eye: orange, which is busy, has more green in it."""
    colour = line.evaluate("line => getComputedStyle(line).stroke")
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    return red > 150 and red > 3 * green and red > 3 * blue


def status_of(desk: Desk) -> dict[str, Any]:
    """What README.md's command says, with `--json`."""
    said = desk.second_terminal(f"{desk.guide.command('ri2n status')} --json")
    answer: dict[str, Any] = json.loads(said)
    return answer


def sent_by(desk: Desk, host: str, nic: str) -> tuple[float, float]:
    """What the host sends to A by that NIC, and by its others, in bit/s."""
    own = others = 0.0
    for pair in status_of(desk)["pairs"]:
        for path in pair["paths"] if (pair["src"], pair["dst"]) == (host, "A") else ():
            if path["own"] == nic:
                own += path["tx_bps"] or 0.0
            else:
                others += path["tx_bps"] or 0.0
    return own, others


def goes_on_without(desk: Desk, host: str, nic: str) -> bool:
    """Whether the host sends data by its other NICs alone."""
    own, others = sent_by(desk, host, nic)
    return own < DATA_BPS < others


def open_address(desk: Desk, visit: Visit, pictures: Pictures, token: str) -> None:
    """Step 1: open the address, which logs in."""
    step = desk.guide.steps()[0]
    step.says("Open the address")
    page = visit.page
    page.goto(f"{visit.url}/login#token={token}")
    page.get_by_role("button", name="Log out").wait_for()
    page.locator(".banner").get_by_text("No problem is known").wait_for()
    for host in "ABCD":
        page.get_by_role("button", name=fine(host)).wait_for()
    page.wait_for_function("window.socket?.connected && window.did_handshake")
    assert token not in page.url
    pictures.of_page(page, "opened")
    desk.watch.done("open the address")


def change_strategy(desk: Desk, page: Page, pictures: Pictures) -> None:
    """Step 2: change the strategy, and look at the traffic."""
    step = desk.guide.steps()[1]
    assert status_of(desk)["strategy"] != STRATEGY
    follow(page, step, "Settings")
    page.get_by_label(step.name("New strategy")).click()
    page.get_by_role("option", name=STRATEGY, exact=True).click()
    page.get_by_role("button", name=step.name("Change the strategy")).click()
    step.says("confirm")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"to {STRATEGY} for the whole cluster")
    pictures.of_page(page, "confirm")
    dialog.get_by_role("button", name=f"Change to {STRATEGY}").click()
    dialog.wait_for(state="detached")
    page.locator("p[role=status]", has_text=f"{STRATEGY}: ").wait_for()
    assert status_of(desk)["strategy"] == STRATEGY
    pictures.of_page(page, "in-force")
    desk.watch.done("change the strategy")

    follow(page, step, "Traffic")
    expect(sends_of(page, "C")).to_have_text(DATA)
    pictures.of_page(page, "traffic")
    desk.watch.done("look at the traffic")


def cut_the_link(desk: Desk, page: Page, pictures: Pictures, wait_until: WaitUntil) -> None:
    """Step 3: cut a link of C, which goes on."""
    step = desk.guide.steps()[2]
    follow(page, step, "Network")
    command = step.command("ri2n lab fault")
    host, nic = re.findall(r"--(?:host|nic) (\S+)", command)
    line = cable_of(page, host, nic)
    assert host == "C" and not is_red(line)
    desk.second_terminal(command)
    desk.watch.done("cut the link")
    wait_until(lambda: is_red(line), lambda: page.locator("body").inner_text())
    page.get_by_role("button", name=re.compile("^host C: 1 dead")).wait_for()
    desk.watch.done("see it red")
    pictures.of_page(page, "red")

    step.says("C goes on by its other link")
    wait_until(lambda: goes_on_without(desk, host, nic), lambda: str(sent_by(desk, host, nic)))
    follow(page, step, "Traffic")
    expect(row_of(page, "Hosts", host)).to_contain_text("1 of 2 work")
    expect(sends_of(page, host)).to_have_text(DATA)
    row_of(page, "Hosts", host).get_by_text(step.name("Show"), exact=True).click()
    page.get_by_text(re.compile(rf"^{host} has sent since .*")).wait_for()
    pictures.of_page(page, "goes-on")
    desk.watch.done("see that C goes on")
    status = desk.guide.command("ri2n status")
    said = desk.second_terminal(status)
    pictures.of_terminal(f"$ {status}\n{said}", "status")
    desk.watch.done("ask for the status")


def see_it_heal(desk: Desk, page: Page, pictures: Pictures, wait_until: WaitUntil) -> None:
    """Step 4: restore the link."""
    step = desk.guide.steps()[3]
    follow(page, step, "Network")
    host, nic = re.findall(r"--(?:host|nic) (\S+)", desk.guide.command("ri2n lab fault"))
    line = cable_of(page, host, nic)
    wait_until(lambda: is_red(line), "the page that was opened anew shows the cut, too")
    desk.watch.done("open the network again")
    desk.second_terminal(step.command("ri2n lab restore"))
    desk.watch.done("restore the link")
    wait_until(lambda: not is_red(line), lambda: page.locator("body").inner_text())
    page.get_by_role("button", name=fine("C")).wait_for()
    page.locator(".banner").get_by_text("No problem is known").wait_for()
    desk.watch.done("see it heal")
    wait_until(
        lambda: re.search("heat-[1-4]", str(line.get_attribute("class"))),
        lambda: str(sent_by(desk, host, nic)),
    )
    desk.watch.done("see traffic on it again")
    pictures.of_page(page, "healed")


@pytest.mark.long
@pytest.mark.timeout(4 * LIMIT_S)
@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt install chromium")
def test_a_newcomers_way(tmp_path: Path, wait_until: WaitUntil) -> None:
    """README, demo, GUI, another strategy, a cut link, see it heal, Ctrl-C."""
    if DEFAULT_SOCKET.exists():
        pytest.skip("a controller runs on this machine, and README.md's commands would ask it")
    expect.set_options(timeout=LONG_MS)
    folder = Path(os.environ.get("RI2N_NEWCOMER_PICTURES") or tmp_path)
    load_before = os.getloadavg()[0]
    with (
        browsing() as browser,  # before the clock runs
        desk() as here,
        Terminal(plain(here.guide.command("./dev demo")), here.folder, here.environment) as demo,
    ):
        pictures, watch = Pictures(folder, browser), here.watch
        demo.until(r"^dev: ready", LIMIT_S)
        watch.done("set up")
        lab = demo.until(r"building lab (\S+):", LIMIT_S)[1]
        demo.until(r"all hosts have connected", LIMIT_S)
        watch.done("build the cluster")
        address = demo.until(r"^Open (http://127\.0\.0\.1:\d+/login#token=\S+)$", LIMIT_S)[1]
        here.guide.says("Its last line is the address of its web page, which logs you in")
        url, token = address.split("login#token=")
        assert demo.text.strip().splitlines()[-1] == f"Open {address}" and remains(lab)
        watch.done("four strategies, then the address")
        shown = demo.text.replace(token, "*" * len(token))
        pictures.of_terminal(shown[shown.index("dev: ready") :], "demo")

        with Visit(browser, url.rstrip("/"), **WINDOW) as visit:
            open_address(here, visit, pictures, token)
            change_strategy(here, visit.page, pictures)
            cut_the_link(here, visit.page, pictures, wait_until)
            see_it_heal(here, visit.page, pictures, wait_until)

        here.guide.says("Ctrl-C in the first terminal removes everything")
        before = len(demo.text)
        demo.press_ctrl_c()
        assert demo.wait(PATIENCE_S) == 0, demo.text
        watch.done("Ctrl-C")
        assert "Traceback" not in demo.text, demo.text
        assert remains(lab) == []
        # All labs together have a lock, which stays.
        assert {path.name for path in here.labs.iterdir()} <= {".lock-"}
        assert [*here.temporary.iterdir()] == []
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(url, timeout=PATIENCE_S)
        pictures.of_terminal(demo.text[before:], "removed")
        seconds = watch.seconds
    about = {
        "fresh_clone": "git clone" in seconds,
        "cpus": os.cpu_count(),
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
    }
    total = {"seconds": seconds, "total_s": round(sum(seconds.values()), 1)}
    print(json.dumps(about | total, indent=1))
