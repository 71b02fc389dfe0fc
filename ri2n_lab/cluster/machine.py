# SPDX-License-Identifier: Apache-2.0
"""A host of a lab as a machine: systemd as its first process, a disk of its own, a power switch.

The host has the NICs that the lab gave it. Processes, mounts, host name and cgroup are its own. Its
disk begins as a copy of this machine's root and keeps its changes from boot to boot, in memory,
until the machine is removed. So a test can install, enable and start services on it as an
administrator does.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ri2n_lab.cluster.lab import Lab
from ri2n_lab.cluster.run import run
from ri2n_sdn.errors import NotAvailable

__all__ = ["Machine"]

MANAGEMENT = "mgmt0"
"""The host's NIC on the control network, which the lab configures."""

BOOT_S = 300.0  # a limit against hanging: on an idle machine a boot takes two
SCRIPT = Path(__file__).with_name("machine-init")


class Machine:
    """A plain host of a lab as a machine: `with Machine(lab, "A") as machine: machine.boot()`.

    It ends with the lab, and with the process that made it. Raises NotAvailable where this machine
    does not allow it: no systemd, or no right to mount an overlay and a cgroup.
    """

    def __init__(self, lab: Lab, host: str, *folders: Path) -> None:
        """Make the machine, with its power off.

        It sees `folders` of this machine under their own paths, even where it has a file system of
        its own.
        """
        if not Path("/lib/systemd/systemd").exists():
            raise NotAvailable("a machine needs systemd: apt install systemd")
        if shutil.which("nsenter") is None:
            raise NotAvailable("nsenter is missing: apt install util-linux")
        self.host = host
        self._folders = [str(folder) for folder in folders]
        self._network = Path("/run/netns") / lab.namespace(host)
        self._folder = lab.run_dir / host / "machine"
        self._folder.mkdir(parents=True, exist_ok=True)
        # By number, which a NIC keeps when it is renamed.
        self._hardware = _devices(self._network).keys()
        self._log = lab.run_dir / host / "machine.log"
        self._first: subprocess.Popen[bytes] | None = None
        argv = ["nsenter", f"--net={self._network}", "unshare", "--mount"]
        argv += ["bash", str(SCRIPT), "keep", str(self._folder)]
        with self._log.open("wb") as log:
            self._keeper = subprocess.Popen(
                argv,
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
                raise NotAvailable(
                    f"this machine allows no machines in it: {self._log.read_text().strip()}"
                )

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def boot(self) -> None:
        """Switch the power on, and wait until the services have started or failed.

        Raises NotAvailable when the machine does not come up.
        """
        argv = [
            "nsenter",
            f"--net={self._network}",
            f"--mount=/proc/{self._keeper.pid}/ns/mnt",
            "bash",
            str(SCRIPT),
        ]
        argv += ["boot", str(self._folder), self.host, *self._folders]
        with self._log.open("wb") as log:
            self._first = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline_s = time.monotonic() + BOOT_S
        while self.run("systemctl", "is-system-running", check=False).stdout.strip() not in (
            "running",
            "degraded",
        ):
            if time.monotonic() > deadline_s or self._first.poll() is not None:
                raise NotAvailable(
                    f"machine {self.host} does not come up: {self._log.read_text()} "
                    f"{self.journal()[-2000:]}"
                )
            time.sleep(0.05)

    def cut_power(self) -> None:
        """Switch the power off at once: nothing is written, and no process is told.

        The disk stays. NICs and the kernel's settings are then as after power on.
        """
        if self._first is not None:
            if self._keeper.poll() is None:
                Path(
                    f"/proc/{self._keeper.pid}/root",
                    *self._folder.parts[1:],
                    "group",
                    "cgroup.kill",
                ).write_text("1")
            self._first.wait()
            self._first = None
            self._reset()

    def remove(self) -> None:
        """Switch the power off and delete the disk; to call it twice is no error."""
        self.cut_power()
        assert self._keeper.stdin is not None
        with suppress(OSError):
            self._keeper.stdin.close()
        self._keeper.terminate()
        self._keeper.wait()

    def run(
        self, *argv: str, check: bool = True, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine, as its root.

        With `check`, a command that fails raises CalledProcessError. Without power the result has
        status 1.
        """
        first = self._first_pid()
        if first is None:
            return subprocess.CompletedProcess(argv, 1, "", "off")
        line = ["nsenter", "--all", f"--target={first}", "--", *argv]
        # The tools of Open vSwitch and systemd find what they need below /run. Variables of this
        # process would lead them elsewhere.
        clean = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
        }
        return subprocess.run(
            line, capture_output=True, text=True, check=check, input=input, env=clean
        )

    def write(self, path: str, text: str) -> None:
        """Write a file on the machine's disk, and make the folders that are missing."""
        self.run("install", "-D", "-m", "644", "/dev/stdin", path, input=text)

    def journal(self, *units: str) -> str:
        """What its services (all, or `units`) have logged since it was booted."""
        return self.run(
            "journalctl",
            "--no-pager",
            "-o",
            "cat",
            *(f"--unit={unit}" for unit in units),
            check=False,
        ).stdout

    def network(self, *argv: str) -> str:
        """Run a command in the machine's network namespace, which is there without power, too.

        It stands for what somebody does to NICs by hand.
        """
        return run(["nsenter", f"--net={self._network}", *argv]).stdout

    def _reset(self) -> None:
        """Remove what the kernel forgets without power.

        That is devices made by software, addresses, nftables rules and settings of NICs.
        """
        for number, device in _devices(self._network).items():
            if number not in self._hardware:
                self.network("ip", "link", "del", device)
            elif device != MANAGEMENT:
                words = (
                    f"ip addr flush dev {device}; ip link set {device} down; ip link set "
                    f"{device} mtu 1500"
                )
                words += f"; echo 0 >/proc/sys/net/ipv6/conf/{device}/disable_ipv6"
                self.network("sh", "-c", f"{{ {words}; }} 2>/dev/null; true")
        self.network("ip", "addr", "flush", "dev", "lo", "scope", "global")
        self.network("nft", "flush", "ruleset")

    def _first_pid(self) -> int | None:
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


def _devices(network: Path) -> dict[str, str]:
    """The names of the Ethernet devices of a network namespace, by interface number."""
    lines = run(["nsenter", f"--net={network}", "ip", "-o", "link", "show"]).stdout.splitlines()
    fields = [line.split(": ") for line in lines if " link/ether " in line]
    return {number: name.partition("@")[0] for number, name, *_ in fields}
