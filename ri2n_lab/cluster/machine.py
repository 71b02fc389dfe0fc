"""A host of a lab as a machine: systemd as its first process, a disk of its own, a power switch.

The host's NICs are those of its lab; all else is its own: processes, mounts, host name, cgroup. Its
disk begins as this machine's root and keeps its changes from boot to boot, in memory, until the
machine is removed. So what is installed, enabled and started on it is what an administrator
installs, enables and starts.
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

MANAGEMENT = "mgmt0"  # the lab's way to the controller
BOOT_S = 300.0  # a net against hanging: on an idle machine it is two
SCRIPT = Path(__file__).with_name("machine-init")


class Machine:
    """The host `host` of `lab`, which must be a plain one. `with Machine(lab, "A") as machine:
    machine.boot()`.

    It ends with the lab, and with the process that made it. NotAvailable where this machine does
    not allow it: no systemd, or no right to mount an overlay and a cgroup.
    """

    def __init__(self, lab: Lab, host: str, *folders: Path) -> None:
        """`folders` of this machine are there under the same path, whatever lies over them."""
        if not Path("/lib/systemd/systemd").exists():
            raise NotAvailable("a machine needs systemd: apt install systemd")
        if shutil.which("nsenter") is None:
            raise NotAvailable("nsenter is missing: apt install util-linux")
        self.host = host
        self._folders = [str(folder) for folder in folders]
        self._network = Path("/run/netns") / lab.namespace(host)
        self._folder = lab.run_dir / host / "machine"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._hardware = _devices(
            self._network
        ).keys()  # by number, which a NIC that is renamed keeps
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
        with self._keeper.stdout as said:
            if said.readline() != "ready\n":
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
        """Power on, and wait until its services have started or failed.

        NotAvailable when it does not come up.
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
        """Off, at once: nothing is written, nobody is told. The disk stays.

        NICs and kernel are as after power on.
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
        """Off, and its disk is gone; twice is no error."""
        self.cut_power()
        assert self._keeper.stdin is not None
        with suppress(OSError):
            self._keeper.stdin.close()
        self._keeper.terminate()
        self._keeper.wait()

    def run(
        self, *argv: str, check: bool = True, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command on the machine, as its root.

        With `check`, CalledProcessError tells how it failed.
        """
        first = self._first_pid()
        if first is None:
            return subprocess.CompletedProcess(argv, 1, "", "off")
        line = ["nsenter", "--all", f"--target={first}", "--", *argv]
        # Open vSwitch's tools and systemd's find what they need below /run; nothing of ours shall
        # lead them elsewhere.
        clean = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
        }
        return subprocess.run(
            line, capture_output=True, text=True, check=check, input=input, env=clean
        )

    def write(self, path: str, text: str) -> None:
        """A file on its disk; the folders that are missing are made."""
        self.run("install", "-D", "-m", "644", "/dev/stdin", path, input=text)

    def journal(self, *units: str) -> str:
        """What its services have said since it was booted."""
        return self.run(
            "journalctl",
            "--no-pager",
            "-o",
            "cat",
            *(f"--unit={unit}" for unit in units),
            check=False,
        ).stdout

    def network(self, *argv: str) -> str:
        """A command in the machine's network, which is there without power, too:

        for what hands do to NICs.
        """
        return run(["nsenter", f"--net={self._network}", *argv]).stdout

    def _reset(self) -> None:
        """What the kernel forgets without power: devices of software, addresses, rules,
        settings.
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
        """Systemd's process as this machine sees it: the child of `unshare`."""
        if self._first is None:
            return None
        with suppress(OSError):
            found = (
                Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children").read_text().split()
            )
            # Before it is in its own root, nothing can be run there.
            if found and Path(f"/proc/{found[0]}/comm").read_text() == "systemd\n":
                return int(found[0])
        return None


def _devices(network: Path) -> dict[str, str]:
    """The Ethernet devices of a network namespace, by number."""
    lines = run(["nsenter", f"--net={network}", "ip", "-o", "link", "show"]).stdout.splitlines()
    words = [line.split(": ") for line in lines if " link/ether " in line]
    return {number: name.partition("@")[0] for number, name, *_ in words}
