# SPDX-License-Identifier: Apache-2.0
"""A private Open vSwitch without root, with hosts and networks as bridges of one ovs-vswitchd.

Patch ports join the bridges. The dummy datapath runs the code of the `netdev` one, with real
OpenFlow connections. Tests put frames in by `netdev-dummy/receive` and read packet captures. Links
have no rate and no delay.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from ri2n_sdn.client import call
from ri2n_sdn.errors import NotAvailable

__all__ = ["Hosts", "PrivateOvs", "Process", "Sandbox", "execute", "host_mac", "reserve_port"]

PROGRAMS = ("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
SCHEMA = Path(os.environ.get("OVS_PKGDATADIR", "/usr/share/openvswitch")) / "vswitch.ovsschema"
# Limits against hanging, far above what a busy machine needs.
START_S, ANSWER_S, SETTLE_S = 120.0, 120.0, 240.0
ASK_EVERY_S = 0.0025
"""Seconds per host between two requests for the status, which is work for the controller, too."""

_SILENT_HELPERS = "import ri2n_sdn.apps.silence as silence; silence.SILENT_S = 1e9"

Hosts = Mapping[str, Sequence[str]]
"""Host name -> the network of each of its NICs, in order."""


class Process(Protocol):
    """A process that was started, with these methods of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def execute(before: str, argv: Sequence[str], log: Path) -> Process:
    """Run `ri2n ARGV` in a new interpreter, after the Python code `before`.

    Its output is appended to `log`.
    """
    command = [sys.executable, "-c", f"{before}\nfrom ri2n_sdn.cli.main import main\nmain()", *argv]
    null = subprocess.DEVNULL
    with log.open("ab") as output:  # in a session of its own, as a service is
        return subprocess.Popen(
            command, stdin=null, stdout=output, stderr=output, start_new_session=True
        )


def host_mac(number: int) -> str:
    """The MAC address of the host with this number, counted from 1."""
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"


class PrivateOvs:
    """An ovsdb-server and an ovs-vswitchd with the dummy datapath, in a folder of their own."""

    def __init__(self) -> None:
        """Start nothing yet; NotAvailable when Open vSwitch is not installed."""
        for program in PROGRAMS:
            if shutil.which(program) is None:
                raise NotAvailable(f"{program} is missing: apt install openvswitch-switch")
        # The path is short, since that of a Unix socket may have 107 characters only.
        self._temporary = tempfile.TemporaryDirectory(prefix="ri2n-ovs-")
        self.folder = Path(self._temporary.name)
        self.env = dict(os.environ)
        for name in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"):
            self.env[name] = str(self.folder)
        self._commands: dict[str, list[str]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> PrivateOvs:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start both servers; NotAvailable when one does not start."""
        database = self.folder / "conf.db"
        self.run("ovsdb-tool", "create", str(database), str(SCHEMA))
        self._daemon("ovsdb-server", str(database), f"--remote=punix:{self.folder}/db.sock")
        _await(lambda: _is_listening(self.folder / "db.sock"), "ovsdb-server's socket")
        self.run("ovs-vsctl", "--no-wait", "init")
        self.run(
            "ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", "other_config:max-revalidator=250"
        )
        self._daemon(
            "ovs-vswitchd",
            f"unix:{self.folder}/db.sock",
            "--enable-dummy=override",
            "--disable-system",
        )
        control = self.folder / f"ovs-vswitchd.{self._processes['ovs-vswitchd'].pid}.ctl"
        _await(lambda: _is_listening(control), f"{control.name}")

    def stop(self) -> None:
        """End both servers and remove the folder."""
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in reversed(self._processes.values()):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self._temporary.cleanup()

    def replace(self, program: str) -> None:
        """Kill `ovsdb-server` or `ovs-vswitchd` by SIGKILL, and start it again at once.

        Returns when the new process takes commands.
        """
        old = self._processes[program]
        old.kill()
        old.wait()
        control = self.folder / f"{program}.{self._spawn(program)}.ctl"
        _await(lambda: _is_listening(control), f"{control.name}")
        (self.folder / f"{program}.{old.pid}.ctl").unlink(missing_ok=True)

    def run(self, *argv: str, check: bool = True, timeout_s: float = ANSWER_S) -> str:
        """Run an OVS tool, and return what it prints.

        With `check`, raises NotAvailable with the tool's message when it fails.
        """
        done = subprocess.run(
            argv, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and done.returncode != 0:
            raise NotAvailable(f"{' '.join(argv)[:200]}: {' '.join(done.stderr.split())[-300:]}")
        return done.stdout

    def vsctl(self, *argv: str) -> str:
        """Run `ovs-vsctl ARGV`, and return what it prints."""
        return self.run("ovs-vsctl", f"--timeout={ANSWER_S:.0f}", *argv)

    def ofctl(self, command: str, bridge: str, *argv: str) -> str:
        """Run `ovs-ofctl -O OpenFlow15 COMMAND BRIDGE ARGV`, and return what it prints."""
        return self.run("ovs-ofctl", "-O", "OpenFlow15", command, bridge, *argv)

    def appctl(self, command: str, *params: str) -> str:
        """Send a command to ovs-vswitchd's control socket, and return the answer.

        This starts no program, unlike ovs-appctl. Raises NotAvailable when the command fails.
        """
        pid = (self.folder / "ovs-vswitchd.pid").read_text().strip()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(str(self.folder / f"ovs-vswitchd.{pid}.ctl"))
            connection.sendall(json.dumps({"id": 1, "method": command, "params": params}).encode())
            data = b""
            while part := connection.recv(1 << 16):
                data += part
                try:
                    reply: dict[str, Any] = json.loads(data)
                except ValueError:
                    continue
                if reply.get("error"):
                    raise NotAvailable(f"{command}: {reply['error']}")
                return str(reply["result"])
        raise NotAvailable(f"{command}: ovs-vswitchd closed the connection")

    def _daemon(self, program: str, *argv: str) -> None:
        log = f"--log-file={self.folder}/{program}.log"
        pid = f"--pidfile={self.folder}/{program}.pid"
        self._commands[program] = [program, *argv, log, pid, "-vconsole:off"]
        self._spawn(program)

    def _spawn(self, program: str) -> int:
        null = subprocess.DEVNULL
        process = subprocess.Popen(
            self._commands[program], env=self.env, stdin=null, stdout=null, stderr=null
        )
        self._processes[program] = process
        return process.pid


class Sandbox:
    """Hosts and networks in a private Open vSwitch, and controllers for them; a context manager.

    `spawn` starts a controller: it is `execute`, or what tests put in its place.
    """

    spawn: Callable[[str, Sequence[str], Path], Process] = staticmethod(execute)

    def __init__(
        self, hosts: Hosts, plain: Mapping[str, str] | None = None, helpers: Collection[str] = ()
    ) -> None:
        """`plain` are hosts without Open vSwitch: name -> network.

        No network may have the name of a host. Hosts in `helpers` have the helper's two ports,
        HOST-plain and HOST-wire, with carrier. Behind these ports is a helper that sends nothing by
        itself; the controllers are changed so that they accept its silence.
        """
        self.helpers = tuple(helpers)
        self.hosts = {name: list(networks) for name, networks in hosts.items()}
        self.plain = dict(plain or {})
        self.networks = sorted(
            {net for nets in hosts.values() for net in nets} | set(self.plain.values())
        )
        self.number = {name: number for number, name in enumerate(self.hosts, 1)}
        self.ovs = PrivateOvs()
        self.folder = self.ovs.folder
        self.socket = self.folder / "controller.sock"
        self.log_file = self.folder / "controller.log"
        self._reserved, self.port = reserve_port()
        self._controllers: list[Process] = []
        self._hurried_pid = 0

    def __enter__(self) -> Sandbox:
        self.ovs.__enter__()
        try:
            self._build()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the controllers and Open vSwitch."""
        for process in self._controllers:
            if process.poll() is None:
                process.terminate()
        for process in self._controllers:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._controllers.clear()
        self.ovs.stop()
        self._reserved.close()

    def mac(self, host: str) -> str:
        """The MAC address of a host's LOCAL port, or of a plain host."""
        if host in self.plain:
            return f"02:00:02:00:00:{list(self.plain).index(host) + 1:02x}"
        return host_mac(self.number[host])

    def nic_mac(self, host: str, port: int) -> str:
        """The MAC address of a managed host's NIC, which Open vSwitch has chosen at random."""
        return (
            self.ovs.vsctl("get", "interface", f"{host}-e{port - 1}", "mac_in_use")
            .strip()
            .strip('"')
        )

    def capture(self, device: str) -> Path:
        """The packet capture of what is sent to a device; a managed host's is its LOCAL port."""
        return self.folder / f"{device}.pcap"

    def host_commands(
        self, name: str, number: int, networks: Sequence[str], port: int | None = None
    ) -> list[str]:
        """Arguments of ovs-vsctl that make a host; `number` chooses its addresses."""
        words = ["--", "add-br", name]
        words += ["--", "set", "bridge", name, "fail_mode=secure", "datapath_type=dummy"]
        words += ["protocols=OpenFlow15", f"other_config:dp-desc={name}"]
        words += ["other_config:disable-in-band=true", f"other_config:datapath-id={number:016x}"]
        words += [f'other_config:hwaddr="{host_mac(number)}"']
        words += ["--", "set", "interface", name, f"options:tx_pcap={self.capture(name)}"]
        for index, network in enumerate(networks, 1):
            words += self.link_commands(name, index, network)
        for tap, number in (("plain", 101), ("wire", 102)) if name in self.helpers else ():
            device = f"{name}-{tap}"
            words += ["--", "add-port", name, device]
            words += ["--", "set", "interface", device, "type=dummy"]
            words += [f"ofport_request={number}", f"options:tx_pcap={self.capture(device)}"]
        words += ["--", "set-controller", name, f"tcp:127.0.0.1:{port or self.port}"]
        words += ["--", "set", "controller", name]
        words += ["max_backoff=1000", "inactivity_probe=60000", "controller_rate_limit=1000"]
        return [*words, "controller_burst_limit=1000", "connection_mode=out-of-band"]

    def link_commands(self, host: str, port: int, network: str) -> list[str]:
        """Arguments of ovs-vsctl that join a host's port to a network."""
        near, far = f"{host}-e{port - 1}", f"{network}-{host}-{port - 1}"
        words = ["--", "add-port", host, near, "--", "set", "interface", near, "type=patch"]
        words += [f"ofport_request={port}", f"options:peer={far}"]
        words += ["--", "add-port", network, far, "--", "set", "interface", far, "type=patch"]
        return [*words, f"options:peer={near}"]

    def receive(self, device: str, *frames: str) -> None:
        """Let a port receive frames (hex, or flows with `--len`), as if its host had sent them."""
        self.ovs.appctl("netdev-dummy/receive", device, *frames)

    def run_helper(self, host: str, runs: bool) -> None:
        """Give carrier to the helper's two ports, or (`runs` False) take it from them.

        A helper does that when it opens or closes its TAPs.
        """
        for tap in ("plain", "wire"):
            self.ovs.appctl(
                "netdev-dummy/set-admin-state", f"{host}-{tap}", "up" if runs else "down"
            )

    # ---- controllers

    def declared(self) -> str:
        """The text of a cluster.yaml that names all hosts, so a controller waits for no others."""
        return "hosts:\n" + "".join(f"  {name}: {{nics: {{}}}}\n" for name in self.hosts)

    def start_controller(
        self,
        *,
        strategy: str = "round_robin",
        config: str | None = None,
        before: str = "",
        extra: Sequence[str] = (),
    ) -> Process:
        """Start `ri2n controller`.

        `config` is the text of cluster.yaml (None: `declared()`), `before` Python code that runs
        first, `extra` are further options.
        """
        path = self.folder / "cluster.yaml"
        path.write_text(self.declared() if config is None else config)
        argv = ["controller", "--listen", f"127.0.0.1:{self.port}", "--socket", str(self.socket)]
        argv += ["--config", str(path), "--strategy", strategy, *extra]
        if "--store" not in extra and "--state-dir" not in extra:
            argv += ["--state-dir", str(self.folder / "memory")]
        if self.helpers:
            before = f"{_SILENT_HELPERS}\n{before}"
        process = self.spawn(before, argv, self.log_file)
        self._controllers.append(process)
        return process

    def kill_controllers(self) -> None:
        """End every controller by SIGKILL."""
        for process in self._controllers:
            process.kill()
            process.wait()
        self._controllers.clear()

    def ask(self, operation: str, **values: Any) -> dict[str, Any]:
        """Send one request to the controller's local API; raises what `call` raises."""
        return call(self.socket, operation, timeout_s=ANSWER_S, **values)

    def log(self) -> str:
        """What the controllers have written."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def wait_settled(
        self,
        timeout_s: float = SETTLE_S,
        hosts: int | None = None,
        hurry: bool = True,
        pairs: bool = True,
    ) -> dict[str, Any]:
        """Wait until all hosts are connected and the controller has settled; return its status.

        `hosts` is the number of hosts to wait for (None: all). `hurry`: hosts that wait before they
        connect again are made to connect now; a host that connects at that moment does so twice.
        `pairs`: the status has the pairs, which is much work for a controller of many hosts. Raises
        NotAvailable after `timeout_s` seconds.
        """
        wanted = len(self.hosts) if hosts is None else hosts
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                status = self.ask("status", pairs=False)
                connected = {host["name"] for host in status["hosts"] if host["connected"]}
                if hurry:
                    self._hurry(status["pid"], connected)
                if status["settled"] and len(connected) == wanted:
                    return self.ask("status") if pairs else status
                state = (
                    f"{len(connected)} of {wanted} hosts, settled {status['settled']}, "
                    f"{status['counters']}"
                )
            except NotAvailable as error:
                state = str(error)
            if time.monotonic() > deadline_s:
                raise NotAvailable(
                    f"not settled after {timeout_s:g} s: {state}; log: {self.log()[-1500:]}"
                )
            time.sleep(max(0.05, ASK_EVERY_S * len(self.hosts)))

    def hurry(self, connected: Collection[str] = ()) -> None:
        """Make all hosts connect now, except those in `connected`.

        Without this, OVS 3.1 waits up to 8 s before it connects again: it takes no notice of
        max_backoff. The controller's address is spelled in another way, which Open vSwitch takes
        for a new target.
        """
        words = []
        for name in (name for name in self.hosts if name not in connected):
            target = self.ovs.vsctl("get", "controller", name, "target").strip().strip('"')
            other = "[::ffff:127.0.0.1]" if "::" not in target else "127.0.0.1"
            words += ["--", "set", "controller", name, f'target="tcp:{other}:{self.port}"']
        self.ovs.vsctl(*words[1:])

    def _hurry(self, pid: int, connected: set[str]) -> None:
        """Call `hurry` once for each controller (`pid`), when there are hosts that wait."""
        if pid != self._hurried_pid and len(connected) < len(self.hosts):
            self._hurried_pid = pid
            self.hurry(connected)

    # ---- how it is made

    def _build(self) -> None:
        words: list[str] = []
        for network in self.networks:
            words += ["--", "add-br", network]
            words += ["--", "set", "bridge", network, "datapath_type=dummy"]
        for name, network in self.plain.items():
            words += ["--", "add-port", network, name, "--", "set", "interface", name, "type=dummy"]
            words += [f"options:tx_pcap={self.capture(name)}"]
        for name, networks in self.hosts.items():
            words += self.host_commands(name, self.number[name], networks)
        self.ovs.vsctl(*words[1:])


def reserve_port() -> tuple[socket.socket, int]:
    """A socket that reserves a free TCP port of 127.0.0.1, and the number of that port.

    The socket is bound and does not listen. So no other program is given the port, a controller can
    still listen there, and a switch that tries to connect cannot connect to itself.
    """
    generator = random.SystemRandom()
    while True:
        reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = generator.randrange(10_000, 32_000)
        try:
            reserved.bind(("127.0.0.1", port))
        except OSError:
            reserved.close()
            continue
        return reserved, port


def _is_listening(path: Path) -> bool:
    """Whether a process takes connections at `path`: the file is there before that."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
        return True


def _await(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` holds; NotAvailable, which names `what`, after START_S seconds."""
    deadline_s = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise NotAvailable(f"no {what} after {START_S:g} s")
        time.sleep(0.01)
