"""A Debian for tests of packages: a chroot with mounts, processes and a network of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pytest

__all__ = ["DebianBox", "Done", "bootstrap"]

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C",
    "DEBIAN_FRONTEND": "noninteractive",
}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "net/tun")
SETUP = """
set -e
root=$1/root
mkdir "$root" "$1/upper" "$1/work"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/net" "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
for device in $4; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount --bind "$3" "$root/mnt"
ip link set lo up
echo ready
exec sleep infinity
"""

Done = subprocess.CompletedProcess[str]


def bootstrap(folder: Path, packages: Sequence[str]) -> Path:
    """A chroot of Debian 12 in `folder` with these packages; skips where it cannot be made.

    RI2N_DEBIAN may name one that was made before.
    """
    named = os.environ.get("RI2N_DEBIAN")
    if named:
        return Path(named)
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap: apt install mmdebstrap")
    root = folder / "debian"
    argv = ["mmdebstrap", "--mode=root", "--variant=apt", f"--include={','.join(packages)}"]
    done = subprocess.run(
        [*argv, SUITE, str(root), MIRROR], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"a Debian cannot be made here: {done.stderr[-500:]}")
    # No package starts a service: there is no systemd as the first process.
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    return root


class DebianBox:
    """`with DebianBox(folder, root, packages) as box`: `root` with changes that go at the end.

    Its processes see nothing else, have no way out of it, and end with it. `packages` is a folder
    that they see as /mnt.
    """

    def __init__(self, folder: Path, root: Path, packages: Path) -> None:
        """Make the box in a new folder."""
        folder.mkdir()
        self.root = folder / "root"
        # It also ends when this process is killed.
        argv = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--net", "--ipc"]
        argv += ["--uts", "--fork", "--kill-child"]
        argv += ["bash", "-c", SETUP, "setup", str(folder), str(root), str(packages)]
        self._keeper = subprocess.Popen(
            [*argv, " ".join(DEVICES)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != "ready\n":
            self.remove()
            pytest.skip("this machine allows no namespaces and overlays")
        children = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children")
        self._first = children.read_text().split()[0]

    def __enter__(self) -> DebianBox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """End all processes of the box; with them go its mounts and its network."""
        self._keeper.kill()
        self._keeper.wait()
        if self._keeper.stdout is not None:
            self._keeper.stdout.close()

    def argv(self, *command: str) -> list[str]:
        """What runs a command in the box."""
        enter = ["nsenter", f"--target={self._first}", "--mount", "--pid", "--net", "--ipc"]
        return [*enter, "--uts", "--", "chroot", str(self.root), *command]

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

    def path(self, name: str) -> Path:
        """A file of the box as this process can reach it."""
        return Path(f"/proc/{self._first}/root{self.root}") / name.lstrip("/")

    def exists(self, name: str) -> bool:
        """Whether the box has that file, folder or link."""
        return os.path.lexists(self.path(name))

    def files(self) -> set[str]:
        """All files, folders and links on the box's disk."""
        return set(self.run("find", "/", "-xdev").stdout.splitlines())
