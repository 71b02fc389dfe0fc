# SPDX-License-Identifier: Apache-2.0
"""A Debian for tests of packages: a machine with systemd, a disk and a network of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pytest

__all__ = ["MIRROR", "DebianBox", "Done", "bootstrap"]

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
SCRIPT = Path(__file__).resolve().parents[2] / "ri2n_lab/cluster/machine-init"
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C",
    "DEBIAN_FRONTEND": "noninteractive",
}
MASKED = (
    *("getty.target", "systemd-logind.service", "systemd-timesyncd.service", "timers.target"),
    # It would get the events of this machine's devices, too.
    *("systemd-udevd.service", "systemd-udevd-kernel.socket", "systemd-udevd-control.socket"),
)
BOOT_S = 300.0  # a limit against hanging: on an idle machine a boot takes two

Done = subprocess.CompletedProcess[str]


def bootstrap(folder: Path, packages: Sequence[str], off: Sequence[str] = ()) -> Path:
    """A clean Debian 12 in `folder` with these packages; skips where it cannot be made.

    The services `off` are installed and do not start at boot. RI2N_DEBIAN may name a Debian that
    was made before.
    """
    named = os.environ.get("RI2N_DEBIAN")
    if shutil.which("mmdebstrap") is None and not named:
        pytest.skip("needs mmdebstrap: apt install mmdebstrap")
    root = Path(named) if named else folder / "debian"
    if not named:
        # What it mounts is seen by nobody else, and goes with it if it is killed.
        argv = ["unshare", "--mount", "mmdebstrap", "--mode=root", "--variant=apt"]
        argv.append(f"--include={','.join(packages)}")
        done = subprocess.run(
            [*argv, SUITE, str(root), MIRROR], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            pytest.skip(f"a Debian cannot be made here: {done.stderr[-500:]}")
    for unit in MASKED:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    # What a link names is not on this machine, and rglob(NAME) says nothing of such a link.
    for link in list((root / "etc/systemd/system").rglob("*")):
        if link.name in off and link.parent.name.endswith((".wants", ".requires")):
            link.unlink()
            # A purge of any package removes an empty folder, and piuparts would miss it.
            if not any(link.parent.iterdir()):
                link.parent.rmdir()
    (root / "etc/hostname").write_text("box\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 box\n")
    (root / "etc/machine-id").write_text("")
    (root / "etc/ri2n-machine").touch()
    return root


class DebianBox:
    """`with DebianBox(folder, root, packages) as box`: `root` with changes that go at the end.

    systemd is its first process, as on a machine. Its processes see nothing else, have no way out
    of it, and end with it, and with this process. `packages` is a folder that they see under the
    same path.
    """

    def __init__(self, folder: Path, root: Path, packages: Path) -> None:
        """Make the box in a new folder, and boot it."""
        folder.mkdir()
        self._folder, self._lower, self._shown = folder, root, packages
        self._log = folder.with_suffix(".log")
        self._first: subprocess.Popen[bytes] | None = None
        with self._log.open("wb") as log:
            self._keeper = subprocess.Popen(
                ["unshare", "--mount", "--net", "bash", str(SCRIPT), "keep", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as output:
            if output.readline() != "ready\n":
                self.remove()
                pytest.skip("this machine allows no namespaces and overlays")
        self.boot()

    def __enter__(self) -> DebianBox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def boot(self) -> None:
        """Switch the power on, and wait until the services have started or failed."""
        namespaces = [f"--{each}=/proc/{self._keeper.pid}/ns/{each[:3]}" for each in ("net", "mnt")]
        namespaces[1] = namespaces[1].replace("--mnt", "--mount")
        argv = ["nsenter", *namespaces, "bash", str(SCRIPT), "boot", str(self._folder), "box"]
        with self._log.open("ab") as log:
            self._first = subprocess.Popen(
                [*argv, str(self._shown)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "RI2N_MACHINE_ROOT": str(self._lower)},
                start_new_session=True,
            )
        deadline_s = time.monotonic() + BOOT_S
        while self._pid() is None or self.run(
            "systemctl", "is-system-running", check=False
        ).stdout.strip() not in ("running", "degraded"):
            assert time.monotonic() < deadline_s and self._first.poll() is None, (
                self._log.read_text()
            )
            time.sleep(0.05)

    def cut_power(self) -> None:
        """Switch the power off at once. The disk stays, and so do devices of hardware."""
        if self._first is not None:
            if self._keeper.poll() is None:
                inside = Path(f"/proc/{self._keeper.pid}/root")
                group = inside.joinpath(*self._folder.parts[1:], "group", "cgroup.kill")
                group.write_text("1")
            self._first.wait()
            self._first = None
            # A TAP stays when the switch that made it has gone, but no TAP outlives a machine.
            inside_net = ["nsenter", f"--net=/proc/{self._keeper.pid}/ns/net", "ip"]
            listing = [*inside_net, "-o", "link", "show", "type", "tun"]
            said = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
            for line in said.splitlines():
                name = line.split(":")[1].strip()
                subprocess.run([*inside_net, "link", "del", name], check=False)

    def remove(self) -> None:
        """End all processes of the box; with them go its disk and its network."""
        self.cut_power()
        assert self._keeper.stdin is not None
        with suppress(OSError):
            self._keeper.stdin.close()
        self._keeper.terminate()
        self._keeper.wait()

    def argv(self, *command: str) -> list[str]:
        """What runs a command in the box."""
        return ["nsenter", "--all", f"--target={self.first}", "--", *command]

    def run(self, *command: str, check: bool = True) -> Done:
        """Run a command as root, and return what it said."""
        done = subprocess.run(
            self.argv(*command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            check=False,
        )
        assert not check or done.returncode == 0, (command, done.stdout, done.stderr)
        return done

    def sh(self, script: str, check: bool = True) -> Done:
        """Run a script of bash, which ends at the first error."""
        return self.run("bash", "-ec", script, check=check)

    def start(self, *command: str, log: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on; what it says is in the box's file `log`."""
        with self.path(log).open("ab") as output:
            return subprocess.Popen(
                self.argv(*command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=ENVIRONMENT,
                start_new_session=True,
            )

    def journal(self, *units: str) -> str:
        """What these services have logged since the box was booted."""
        names = [f"--unit={unit}" for unit in units]
        return self.run("journalctl", "--no-pager", "-o", "cat", *names, check=False).stdout

    def path(self, name: str) -> Path:
        """A file of the box as this process can reach it."""
        return Path(f"/proc/{self._pid()}/root", name.lstrip("/"))

    def exists(self, name: str) -> bool:
        """Whether the box has that file, folder or link."""
        return os.path.lexists(self.path(name))

    def files(self) -> set[str]:
        """All files, folders and links on the box's disk."""
        return set(self.run("find", "/", "-xdev").stdout.splitlines())

    @property
    def first(self) -> int:
        """The pid of the box's systemd, as this machine sees it."""
        first = self._pid()
        assert first is not None, self._log.read_text()
        return first

    def _pid(self) -> int | None:
        """The pid of systemd outside its namespace, as child of `unshare`; None without power."""
        if self._first is None:
            return None
        with suppress(OSError):
            path = Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children")
            children = path.read_text().split()
            # Until the child has become systemd, it is not in its own root.
            if children and Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n":
                return int(children[0])
        return None
