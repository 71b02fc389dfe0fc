# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.run`, which is `./dev test`: run all tiers, and print a table of their results.

The tiers run one after the other. But guests in virtual time have the same results however little
CPU they get. So the tier `kernel` runs beside the other tiers from the beginning, with the CPU that
these leave, which is much where labs in real time wait.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ri2n_lab.guests.kernels import build_script, find_kernel
from ri2n_sdn.errors import NotAvailable
from tests.run.guests import Pace, Say, by_length, can_boot, compile_once, run_files
from tests.run.tally import NOTHING_SELECTED, Outcome, read_cargo, read_junit, summary
from tests.run.tiers import ROOT, TIERS, Tier, marks, of_a_tier, select, why_not

ADDS = """--all adds the tests that are marked `long` (soaks, thousands of random cases, every peer,
whole campaigns), the labs' `virtual` tests on this machine's netdev datapath in real time, and the
helper's long soaks. This takes hours on two CPUs."""


def main() -> int:
    """Run what the arguments say; returns 0 if nothing failed, else 1."""
    parser = _parser()
    options, rest = parser.parse_known_args()
    paths = [word for word in rest if word.startswith("tests/")]
    for path in paths:
        if not of_a_tier(path):
            parser.error(f"{path}: no tier has such a test")
    with tempfile.TemporaryDirectory(prefix="ri2n-test.") as folder:
        run = _Run(options, paths, [word for word in rest if word not in paths], Path(folder))
        # On SIGTERM it leaves by an exception, so it still ends its guests and removes its files.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        began_s = time.monotonic()
        outcomes = run.tiers()
        seconds = time.monotonic() - began_s
        if options.junit is not None:
            _keep(Path(folder), options.junit)
    print(summary(outcomes, seconds), flush=True)
    return int(any(outcome.failed for outcome in outcomes))


def _parser() -> argparse.ArgumentParser:
    tiers = "; ".join(f"{tier.name}: {tier.does}" for tier in TIERS)
    parser = argparse.ArgumentParser(
        prog="./dev test",
        description=f"Run the tests, then print the results of each tier ({tiers}). Other "
        "arguments go to pytest.",
        epilog=ADDS,
        allow_abbrev=False,
    )
    parser.add_argument("--tier", choices=[tier.name for tier in TIERS], help="run this tier only")
    parser.add_argument("--all", action="store_true", help="run also what takes hours; see below")
    parser.add_argument(
        "--junit", type=Path, metavar="FOLDER", help="keep the JUnit files in this folder"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="tests at once; default: one to two per CPU"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="decides the guests' random numbers: another seed is another sample",
    )
    return parser


def _say(text: str) -> None:
    print(f"dev: {text}", flush=True)


def _keep(made: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in made.glob("*.xml"):
        shutil.copy(path, folder / path.name)
    _say(f"JUnit files are in {folder}")


@dataclass
class _Run:
    options: argparse.Namespace
    paths: list[str]
    pytest_args: list[str]
    scratch: Path
    builder: subprocess.Popen[bytes] | None = None
    unbuilt: str = ""
    """Why the guests' kernel could not be built; then tiers in guests fail, and are not skipped."""
    env: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    pace: Pace = Pace.FULL
    """The pace of the tier that runs beside others."""
    said: list[str] = field(default_factory=list)
    """What that tier has to print, while another one prints."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if "-m" in self.pytest_args[:-1]:
            at = self.pytest_args.index("-m")
            self.mark = self.pytest_args[at + 1]
            del self.pytest_args[at : at + 2]
        else:
            self.mark = ""
        cache = ROOT / ".pytest_cache"
        writable = os.access(ROOT, os.W_OK) and (not cache.exists() or os.access(cache, os.W_OK))
        if not writable:
            # Root left the folder, and another user runs the tests.
            self.pytest_args += ["-p", "no:cacheprovider"]
            self.env["HYPOTHESIS_STORAGE_DIRECTORY"] = str(self.scratch / "hypothesis")
        if self.env.pop("PYTHONDONTWRITEBYTECODE", "") or not writable:
            # Tests start hundreds of Pythons, and each would compile all modules again.
            self.env["PYTHONPYCACHEPREFIX"] = str(self.scratch / "bytecode")
        if self.options.all:
            # So many examples of each change, with a packet at each prefix.
            self.env.setdefault("RI2N_ORDER_EXAMPLES", "300")

    def tiers(self) -> list[Outcome]:
        """Run the chosen tiers, and return their outcomes in the order of TIERS.

        If the guests' kernel is missing, it is built meanwhile.
        """
        wanted = [tier for tier in TIERS if self.options.tier in (None, tier.name)]
        chosen = [
            (tier, select(tier, self.paths, asked=self.options.tier is not None)) for tier in wanted
        ]
        chosen = [(tier, paths) for tier, paths in chosen if paths]
        if self.options.all:
            _say(ADDS.replace("\n", " "))
        if os.geteuid() == 0 and any(tier.needs_guests for tier, _ in chosen):
            self._start_kernel_build()
        beside = [
            (tier, paths) for tier, paths in chosen if tier.name == "kernel" and len(chosen) > 1
        ]
        outcomes = {}
        try:
            with ThreadPoolExecutor(1) as pool:
                try:
                    self.pace = Pace.GENTLE if beside else Pace.FULL
                    later = [
                        (tier.name, pool.submit(self._tier, tier, paths, self._say_later))
                        for tier, paths in beside
                    ]
                    for tier, paths in chosen:
                        if (tier, paths) not in beside:
                            outcomes[tier.name] = self._tier(tier, paths, _say)
                            self._say_now()
                    self.pace = Pace.FULL
                    self._say_now()
                    outcomes |= {name: outcome.result() for name, outcome in later}
                except BaseException:
                    self.pace = Pace.STOP
                    raise
            return [outcomes[tier.name] for tier, _ in chosen]
        finally:
            if self.builder is not None and self.builder.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self.builder.pid, signal.SIGTERM)
                self.builder.wait()

    def _start_kernel_build(self) -> None:
        with suppress(NotAvailable):
            find_kernel("virtual")
            return
        _say("the guests' kernel is missing: it is built while the first tiers run")
        self.builder = subprocess.Popen(
            [build_script()], cwd=ROOT, stdin=subprocess.DEVNULL, process_group=0
        )

    def _say_later(self, text: str) -> None:
        """Print for the tier that runs beside others.

        As long as another tier prints, the text is kept: else lines of two tiers would alternate.
        """
        with self.lock:
            self.said.append(text)
        if self.pace is not Pace.GENTLE:
            self._say_now()

    def _say_now(self) -> None:
        """Print what `_say_later` has kept."""
        with self.lock:
            for text in self.said:
                _say(text)
            self.said.clear()

    def _tier(self, tier: Tier, paths: list[str], say: Say) -> Outcome:
        if tier.needs_guests:
            self._await_kernel(say)
        began_s = time.monotonic()
        if reason := why_not(tier):
            if self.unbuilt and tier.name in ("kernel", "virtual"):
                return Outcome(tier.name, failed=1, failures=(self.unbuilt,))
            return self._skipped(tier, paths, reason)
        say(f"tier {tier.name}")
        if tier.name == "rust":
            outcome = self._cargo()
        elif tier.name == "kernel":
            outcome = self._guests(tier, paths, say)
        else:
            outcome = self._pytest(tier, paths)
        seconds = time.monotonic() - began_s
        say(f"tier {tier.name}: {outcome.passed} passed, {outcome.failed} failed, {seconds:.0f} s")
        for failure in outcome.failures:
            say(f"failed: {failure}")
        return replace(outcome, seconds=seconds)

    def _await_kernel(self, say: Say) -> None:
        builder = self.builder
        if builder is None:
            return
        if builder.poll() is None:
            say("waiting for the guests' kernel")
        while builder.poll() is None and self.pace is not Pace.STOP:
            time.sleep(0.2)
        if builder.poll():
            self.unbuilt = "the guests' kernel could not be built: `./dev kernel` says why"
            say(self.unbuilt)

    def _skipped(self, tier: Tier, paths: Sequence[str], reason: str) -> Outcome:
        if tier.name == "rust":
            return Outcome(tier.name, why_skipped=reason)
        count = sum("::" in line for line in self._collect(tier, paths)[0].splitlines())
        return Outcome(tier.name, skipped=count, why_skipped=reason)

    def _arguments(self, tier: Tier) -> list[str]:
        mark = marks(tier, self.options.all, self.mark)
        # Tests of the tier unit alone use hypothesis. Its plugin would import all of it at the end
        # of each pytest, and each guest has one.
        without = [] if tier.name == "unit" else ["-p", "no:hypothesispytest"]
        return [*without, *(["-m", mark] if mark else []), *self.pytest_args]

    def _collect(self, tier: Tier, paths: Sequence[str]) -> tuple[str, int]:
        """What pytest would run, one test per line, and whether some files could not be read.

        The latter is 0, or 1 for any number of such files.
        """
        argv = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
        argv += [*self._arguments(tier), *paths]
        done = subprocess.run(
            argv, cwd=ROOT, env=self.env, capture_output=True, text=True, check=False
        )
        broken = int(done.returncode not in (0, NOTHING_SELECTED))
        if broken:
            _say(f"tier {tier.name}: tests cannot be collected:\n{done.stdout}{done.stderr}")
        return done.stdout, broken

    def _workers(self, tier: Tier) -> int:
        return self.options.workers or int(tier.per_cpu * max(2, len(os.sched_getaffinity(0))))

    def _pytest(self, tier: Tier, paths: Sequence[str]) -> Outcome:
        xml = self.scratch / f"{tier.name}.xml"
        argv = [sys.executable, "-m", "pytest", "-q", "-n", str(self._workers(tier))]
        argv += ["--dist", "worksteal" if tier.name == "unit" else "loadfile"]
        argv += [f"--junitxml={xml}", *self._arguments(tier), *paths]
        code = subprocess.run(
            argv, cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, check=False
        ).returncode
        if code == NOTHING_SELECTED:
            return Outcome(tier.name)
        return read_junit(tier.name, [xml], 0.0, broken=int(code not in (0, 1) and xml.exists()))

    def _guests(self, tier: Tier, paths: Sequence[str], say: Say) -> Outcome:
        kernel = find_kernel("virtual")
        if words := can_boot(kernel):
            say(f"no guest boots here: {words}")
            return Outcome(tier.name, failed=1)
        collected, unread = self._collect(tier, paths)
        try:
            bytecode = compile_once(kernel, self.scratch)
        except NotAvailable as error:
            say(str(error))
            return Outcome(tier.name, failed=1)
        written, broken, cases = run_files(
            kernel,
            by_length(collected),
            self._arguments(tier),
            self.scratch,
            say,
            self.options.seed,
            lambda: self.pace,
            bytecode,
        )
        # The JUnit files of guests have virtual seconds, which say nothing about this machine's
        # time.
        return replace(
            read_junit(tier.name, written, 0.0, broken=broken + unread), cases=tuple(cases)
        )

    def _cargo(self) -> Outcome:
        target = ROOT / "target"
        # Root may have left a folder that this user cannot write.
        if not os.access(target if target.exists() else target.parent, os.W_OK):
            target = self.scratch / "target"
        argv = ["cargo", "test", "--locked", "--no-fail-fast"]
        argv += ["--workspace", "--target-dir", str(target)]
        argv += ["--", "--include-ignored"] if self.options.all else []
        with subprocess.Popen(
            argv,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as cargo:
            lines: list[str] = []
            reader = threading.Thread(target=_pass_on, args=(cargo, lines))
            reader.start()
            try:
                code = cargo.wait()
            finally:
                cargo.terminate()  # else the end of this block would wait for cargo
            reader.join()
        return read_cargo("".join(lines), 0.0, code)


def _pass_on(process: subprocess.Popen[str], lines: list[str]) -> None:
    """Print what a process prints, and keep its lines."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
