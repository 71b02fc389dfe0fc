# SPDX-License-Identifier: Apache-2.0
"""Run a command in a user-mode Linux guest: with this machine's files, on another kernel.

A guest is an ordinary process, which leaves nothing behind. Its root is this machine's root, seen
through hostfs below an overlay in the guest's memory. So it can read everything and change nothing,
except in the one folder that it shares with the process that started it.
"""

from __future__ import annotations

import os
import random
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ri2n_lab.guests.kernels import Kernel
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["SHARE", "Guest", "GuestResult"]

SHARE = Path("/run/ri2n-guest")
"""The folder at which a guest sees what it shares with the host."""

MEMORY_MB = 3072
MIN_SHM_MB = 1024  # what a guest uses of its memory, and some room
VIRTUAL_START_S = 1767225600  # Unix time at which virtual time begins: the same in every run
PASSED_ON = (
    "HOME",
    "LANG",
    "LC_ALL",
    "TERM",
    "COLUMNS",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
)
POLL_S = 0.05
POWER_OFF_S = 5.0
BOOT_S = 30.0
"""Seconds that a kernel has to boot, without those that it waits for a CPU; it needs one or two."""

PANIC = "Kernel panic"


@dataclass(frozen=True)
class GuestResult:
    """How a command in a guest ended.

    `guest_s` is its length in seconds by the guest's clock; `real_s` is by this machine's clock,
    and includes booting.
    """

    returncode: int
    guest_s: float
    real_s: float


class Guest:
    """One guest and its one command: `with Guest(...) as guest: guest.wait()`.

    The guest ends at the latest when the block is left. It also ends with the thread that started
    it, so a caller that is killed leaves no process. Its folder `share` is SHARE inside; the
    command's `stdout` and `stderr` are files in that folder.
    """

    def __init__(
        self,
        kernel: Kernel,
        argv: Sequence[str],
        *,
        limit_s: float,
        seed: int = 1,
        memory_mb: int = MEMORY_MB,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        writable: Path | None = None,
        options: Sequence[str] = (),
        cpu: int | None = None,
        pass_fds: Sequence[int] = (),
        put: Mapping[str, str | Path] | None = None,
    ) -> None:
        """Boot the guest, which runs the command `argv` in `cwd`.

        * `limit_s`: the guest is killed after so many real seconds.
        * `seed`: decides all random numbers on a kernel with virtual time.
        * `env`: variables that are added to the few that are passed on.
        * `folder`: where `share` is made; by default the folder for temporary files.
        * `writable`: a folder of this machine that the guest may change.
        * `options`: are added to the kernel's command line.
        * `cpu`: the number of the CPU that the guest runs on, of those that this process may use;
          by default any. A guest runs on one CPU, since its many switches between processes then
          cost a third less than over several.
        * `put`: files in `share`, by name: their text, or the path that they are a link to.

        Raises BadInput for a seed below 1, NotAvailable when the guest cannot be started.
        """
        if seed < 1:
            raise BadInput(f"seed {seed}: must be at least 1")
        self.kernel, self.limit_s = kernel, limit_s
        self.share = Path(tempfile.mkdtemp(prefix="ri2n-guest.", dir=folder))
        self._started_s = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        # The end of a pipe whose other end all processes of the guest hold.
        self._alive_fd: int | None = None
        try:
            shutil.copy(Path(__file__).with_name("guest-init"), self.share / "init")
            (self.share / "command").write_text(
                _command_file(argv, cwd or Path.cwd(), {**kernel.environment, **(env or {})})
            )
            for name in ("stdout", "stderr"):
                (self.share / name).touch()
            for name, content in (put or {}).items():
                if isinstance(content, Path):
                    (self.share / name).symlink_to(content)
                else:
                    (self.share / name).write_text(content)
            extra = [*options, *([f"RI2N_WRITABLE={writable}"] if writable else [])]
            line = _command_line(kernel, self.share, seed, memory_mb, extra)
            # The guest runs in a PID namespace, which ends as a whole. The guest's processes are
            # processes of this machine, and not all of them would notice that their kernel has
            # ended.
            wrapped = ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(_choose_cpu(cpu))]
            wrapped += ["unshare", "--pid", "--fork", "--kill-child", *line]
            path = os.environ.get("PATH", os.defpath)
            self._alive_fd, inherited_fd = os.pipe()
            with (self.share / "console").open("wb") as console, os.fdopen(inherited_fd, "wb"):
                self._process = subprocess.Popen(
                    wrapped,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    env={"PATH": path, "HOME": str(self.share), "TMPDIR": _memory_folder()},
                    pass_fds=[*pass_fds, inherited_fd],
                    start_new_session=True,  # a kernel that panics ends its whole process group
                )
        except OSError as error:
            self.end()
            raise NotAvailable(f"the guest cannot be started: {error}") from None
        except BaseException:
            self.end()
            raise

    def wait(self) -> GuestResult:
        """Wait until the command has ended, and return the result.

        Raises NotAvailable when the guest cannot boot, dies or reaches its time limit.
        """
        while (result := self.poll()) is None:
            time.sleep(POLL_S)
        return result

    def poll(self) -> GuestResult | None:
        """The result, or None as long as the command runs.

        Raises NotAvailable, with the last lines of the guest's console, when the guest cannot boot,
        has died, or is over its time limit.
        """
        assert self._process is not None
        # The file `result` is written before the end, so the end is looked at first.
        ended = self._process.poll() is not None
        real_s = time.monotonic() - self._started_s
        if (self.share / "result").exists():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(POWER_OFF_S)
            self._kill()
            code, start_s, end_s = (self.share / "result").read_text().split()
            return GuestResult(int(code), float(end_s) - float(start_s), real_s)
        if ended:
            how = "died" if self._booted else "cannot boot, its kernel ended"
            raise NotAvailable(f"the guest {how} after {real_s:.0f} s: {self._last_words()}")
        if not self._booted and self._is_stuck(real_s):
            self._kill()
            raise NotAvailable(
                f"the guest cannot boot, it was ended after {real_s:.0f} s: {self._last_words()}"
            )
        if real_s > self.limit_s:
            self._kill()
            raise NotAvailable(
                f"the guest was ended at its limit of {self.limit_s:g} s: {self._last_words()}"
            )
        return None

    @property
    def pid(self) -> int:
        """The process from which all of the guest's processes descend."""
        assert self._process is not None
        return self._process.pid

    def renice(self, nice: int) -> bool:
        """Set the niceness of all its processes, as nice(1) does (-20 to 19); True when it is set.

        The guest's kernel makes a session of its own. Linux may weigh each session as one against
        the others (autogroup); then that weight is set, too. The result is False as long as the
        guest's kernel has not started, and when the system does not allow it.
        """
        try:
            kernel = int(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()[0])
            if os.getsid(kernel) != kernel:
                return False
            os.setpriority(os.PRIO_PGRP, kernel, nice)
            if (weight := Path(f"/proc/{kernel}/autogroup")).exists():
                weight.write_text(str(nice))
        except (OSError, IndexError):
            return False
        return True

    @property
    def stdout(self) -> str:
        """What the command has written to its standard output so far."""
        return (self.share / "stdout").read_text(errors="replace")

    @property
    def stderr(self) -> str:
        """What the command has written to its standard error so far."""
        return (self.share / "stderr").read_text(errors="replace")

    def end(self) -> None:
        """Kill the guest if it still runs, and remove its folder; to call it twice is no error."""
        self._kill()
        shutil.rmtree(self.share, ignore_errors=True)

    def __enter__(self) -> Guest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    @property
    def _booted(self) -> bool:
        """Whether its first process, guest-init, has run."""
        return (self.share / "booted").exists()

    def _is_stuck(self, real_s: float) -> bool:
        """Whether its kernel has panicked, or has not started its first process in BOOT_S seconds.

        On a busy machine a guest waits for a CPU most of the time, which does not make it dead. So
        that time is subtracted.
        """
        if PANIC in self._console:
            return True
        return real_s > BOOT_S and real_s - _waited_s(self.pid) > BOOT_S

    @property
    def _console(self) -> str:
        return (self.share / "console").read_text(errors="replace")

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self._process.wait()
        if self._alive_fd is not None:
            # To kill its first process ends the others, but a little later: the pipe ends when the
            # last process has ended.
            select.select([self._alive_fd], [], [], POWER_OFF_S)
            os.close(self._alive_fd)
            self._alive_fd = None

    def _last_words(self) -> str:
        """The last lines of its console and of its command's standard error, for messages."""
        words = []
        for name in ("console", "stderr"):
            lines = (self.share / name).read_text(errors="replace").split("\n")
            words += [" ".join(line.split()) for line in lines if line.strip()][-3:]
        return " | ".join(words)[-600:] or "no word"


def _waited_s(pid: int) -> float:
    """Seconds that a process and its descendants were ready to run and had no CPU, in total."""
    waited_ns, todo = 0, [pid]
    while todo:
        process = Path(f"/proc/{todo.pop()}")
        # The process may have ended, and a kernel may keep no such statistics.
        with suppress(OSError, ValueError, IndexError):
            waited_ns += int((process / "schedstat").read_text().split()[1])
            todo += [
                int(child)
                for child in (process / "task" / process.name / "children").read_text().split()
            ]
    return waited_ns / 1e9


def _command_file(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> str:
    """The script that the guest's first process runs."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    passed |= {name: value for name, value in os.environ.items() if name.startswith("RI2N_")}
    passed["PATH"] = os.environ.get("PATH", os.defpath)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in {**passed, **env}.items()]
    return "\n".join([*lines, f"cd {shlex.quote(str(cwd))}", f"exec {shlex.join(argv)}"]) + "\n"


def _command_line(
    kernel: Kernel, share: Path, seed: int, memory_mb: int, options: Sequence[str]
) -> list[str]:
    """The command that starts the guest's kernel, with the kernel's options."""
    line = [str(kernel.image), "rootfstype=hostfs", "root=/", "rw", f"mem={memory_mb}M"]
    line += [f"init={share}/init", f"RI2N_SHARE={share}", f"uml_dir={share}/", "umid=guest"]
    line += ["con=null", "con0=null,fd:2", "stderr=1", "quiet"]
    if kernel.virtual:
        line += ["time-travel=inf-cpu", f"time-travel-start={VIRTUAL_START_S * 10**9}"]
        line += [f"random.seed={seed}"]
    return [*line, *options]


def _choose_cpu(wanted: int | None) -> int:
    """The CPU with the number `wanted` among those that this process may use; None: any."""
    allowed = sorted(os.sched_getaffinity(0))
    return random.Random().choice(allowed) if wanted is None else allowed[wanted % len(allowed)]


def _memory_folder(shm: str = "/dev/shm") -> str:
    """The folder in which the file that holds a guest's memory is made.

    The folder must itself be in memory, or each guest writes gigabytes to a disk. But a container's
    /dev/shm often has 64 MB, and a guest that finds no room for a page of its memory dies without
    a message. So `shm` is used where it has MIN_SHM_MB free, else the folder for temporary files.
    """
    if not os.access(shm, os.W_OK):
        return tempfile.gettempdir()
    room = os.statvfs(shm)
    return shm if room.f_bavail * room.f_frsize >= MIN_SHM_MB << 20 else tempfile.gettempdir()
