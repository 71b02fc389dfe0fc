# SPDX-License-Identifier: Apache-2.0
"""What `ri2n doctor` checks of the controller, its sockets, ports, files and hosts."""

from __future__ import annotations

import grp
import os
import platform
import stat
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from ri2n_sdn import __version__
from ri2n_sdn.cli.doctor_machine import (
    FULL,
    MIN_OVS,
    certificate,
    clock,
    disk,
    kernel,
    key,
    memory,
    versions,
)
from ri2n_sdn.cli.examined import Examined, Row, http_get, number_in, user_name
from ri2n_sdn.cli.finding import Finding
from ri2n_sdn.cli.machine import Process, last_option, listening
from ri2n_sdn.client import jobs_socket_of, web_socket_of
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["CHECKS", "examine_controller"]

DEFAULT_LISTEN = "127.0.0.1:6653"
FILES_PER_HOST, OTHER_FILES = 2, 256
_MAX_NAMED = 10


def examine_controller(seen: Examined, only: Collection[str] = ()) -> list[Finding]:
    """The findings of all checks, or of those named, in order. A check that fails is one, too."""
    findings = []
    for name, check in CHECKS.items():
        if only and name not in only:
            continue
        try:
            rows = list(check(seen))
        except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
            rows = [("warning", f"{name} cannot be checked: {error}", "run ri2n doctor as root")]
        findings += [
            Finding(platform.node(), name, verdict, text, advice) for verdict, text, advice in rows
        ]
    return findings


def _running(seen: Examined) -> Iterator[Row]:
    if seen.state is None:
        yield "bad", seen.why, "systemctl start ri2n-controller; journalctl -u ri2n-controller"
        return
    about = seen.state["controller"]
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(about["started_s"]))
    yield "ok", f"process {about['pid']} runs since {since}, strategy {about['strategy']}", ""
    if not about["in_charge"]:
        yield "ok", f"it stands by: {about.get('waits_because', '')}", ""
    if about["version"] != __version__:
        text = f"version {about['version']} runs, and {__version__} is installed"
        yield "warning", text, "systemctl restart ri2n-controller: hosts go on meanwhile"
    counts = Counter(problem["severity"] for problem in seen.state["problems"].values())
    if counts:
        text = f"it reports {counts['bad']} bad problems and {counts['warning']} warnings"
        yield "bad" if counts["bad"] else "warning", text, "see ri2n status"
    if about["cycle_s"] > about["hbspan_s"]:
        text = f"a control cycle takes {about['cycle_s']:.2f} s, longer than the pause between two"
        yield "warning", text, "give its machine more CPU time, or raise hbspan_s in cluster.yaml"


def _user(seen: Examined) -> Iterator[Row]:
    if seen.running is None:
        yield from _no_process(seen)
        return
    name = user_name(seen.running.uid)
    if seen.running.uid == 0:
        advice = "it needs no privilege: run it as the service ri2n-controller"
        yield "warning", "the controller runs as root", advice
    else:
        yield "ok", f"the controller runs as {name}", ""
    group = seen.option("--web-group")
    if group is None:
        return
    try:
        members = grp.getgrnam(group)
    except KeyError:
        yield "bad", f"--web-group {group}: there is no such group", f"groupadd --system {group}"
        return
    web = seen.web()
    if web is not None and web.uid not in (0, seen.running.uid):
        belongs = members.gr_gid in web.groups
        text = f"the web process ({user_name(web.uid)}) is{' ' if belongs else ' not '}in {group}"
        advice = f"usermod -aG {group} {user_name(web.uid)}, and start it again"
        yield ("ok", text, "") if belongs else ("bad", text, advice)


def _sockets(seen: Examined) -> Iterator[Row]:
    if seen.state is None and not seen.socket.exists():
        return  # that it does not run is one problem
    may = {
        seen.socket: 0o600,
        jobs_socket_of(seen.socket): 0o666,
        web_socket_of(seen.socket): 0o660,
    }
    for path, widest in may.items():
        try:
            found = path.stat()
        except FileNotFoundError:
            yield "bad", f"{path}: is missing", "systemctl restart ri2n-controller"
            continue
        mode = stat.S_IMODE(found.st_mode)
        wrong = ""
        if not stat.S_ISSOCK(found.st_mode):
            wrong = "is no socket"
        elif mode & ~widest:
            wrong = f"has mode {mode:04o}: more users may use it than {widest:04o} lets"
        elif widest == 0o666 and mode != widest:
            wrong = f"has mode {mode:04o}: users cannot ask about their jobs"
        elif seen.running is not None and found.st_uid not in (seen.running.uid, 0):
            wrong = f"belongs to {user_name(found.st_uid)}, and not to the controller"
        advice = "systemctl restart ri2n-controller, which makes it anew"
        yield ("bad", f"{path} {wrong}", advice) if wrong else ("ok", f"{path} {mode:04o}", "")


def _store(seen: Examined) -> Iterator[Row]:
    store = seen.state["controller"]["store"] if seen.state is not None else None
    if store is not None:
        if store.get("problem"):
            yield "bad", str(store["problem"]), "docs/operations.md, the controller's memory"
        elif store["kind"] == "none":
            wanted = seen.option("--store") == "none"
            text = "there is no memory: a restart forgets jobs and rights"
            yield ("ok" if wanted else "bad"), text, "" if wanted else "look at the log"
        else:
            yield "ok", f"{store['kind']} store, epoch {store['epoch']}", ""
    folder = seen.state_dir
    if folder is None:
        return
    file = folder / "ri2n.db"
    if not file.exists():
        if seen.state is None or (store is not None and store["kind"] == "own"):
            yield "warning", f"{file}: is missing", "the controller makes it; look at its log"
        return
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077 and stat.S_IMODE(file.stat().st_mode) & 0o077:
        text = f"{file}: other users can read it, and the hashes of tokens in it"
        yield "bad", text, f"chmod 700 {folder}; chmod 600 {file}"
    else:
        yield "ok", f"{file}: {file.stat().st_size >> 10} KiB", ""


def _port(seen: Examined) -> Iterator[Row]:
    listen = seen.option("--listen") or DEFAULT_LISTEN
    host, _, digits = listen.rpartition(":")
    port = int(digits)
    sockets = listening(port, seen.proc)
    own = seen.running.sockets if seen.running is not None else frozenset()
    if seen.state is None:
        if sockets:
            text = f"port {port} is in use, and no controller answers"
            yield "bad", text, f"ss -ltnp 'sport = {port}' says by whom; end it, or change --listen"
        return
    if not sockets:
        yield "bad", f"nobody listens on {listen}", "systemctl restart ri2n-controller"
    elif seen.running is not None and own and not own & sockets.keys():
        text = f"another process listens on port {port}"
        yield "bad", text, f"ss -ltnp 'sport = {port}' says which; end it"
    elif all(sockets.values()) and not any(host["connected"] for host in seen.hosts.values()):
        text = f"it listens on {listen}: only this machine can connect"
        yield "warning", text, "give --listen an address that the hosts reach"
    else:
        plain = "" if seen.option("--tls-key") else ", without TLS: see docs/security.md"
        yield "ok", f"it listens on {host}:{port}{plain}", ""


def _tls(seen: Examined) -> Iterator[Row]:
    web = seen.web()
    argv = web.argv if web is not None else ()
    pairs = [(seen.option("--tls-cert"), seen.option("--tls-key")), (seen.option("--tls-ca"), None)]
    pairs.append((last_option(argv, "--tls-cert"), last_option(argv, "--tls-key")))
    for cert, private in pairs:
        if cert is None:
            continue
        yield from certificate(Path(cert), seen.now)
        if private is not None:
            yield from key(Path(cert), Path(private))


def _limits(seen: Examined) -> Iterator[Row]:
    running = seen.running
    if running is None:
        yield from _no_process(seen)
        return
    need = FILES_PER_HOST * len(seen.hosts) + OTHER_FILES
    limit, used = running.max_files, running.files
    text = f"{used if used is not None else '?'} of {limit or 'any number of'} files are open"
    advice = "systemctl edit ri2n-controller: [Service] LimitNOFILE=65536"
    if limit is not None and used is not None and used > FULL * limit:
        yield "bad", text, advice
    elif limit is not None and limit < need:
        yield "warning", f"{text}; {len(seen.hosts)} hosts may need {need}", advice
    else:
        yield "ok", text, ""
    tasks = _cgroup(seen, running.pid)
    if tasks is not None:
        text = f"{tasks[0]} of {tasks[1]} tasks (threads) are in use"
        full = tasks[0] > FULL * tasks[1]
        advice = "systemctl edit ri2n-controller: [Service] TasksMax=infinity"
        yield ("bad", text, advice) if full else ("ok", text, "")


def _hosts(seen: Examined) -> Iterator[Row]:
    if seen.state is None:
        return
    away = sorted(name for name, host in seen.hosts.items() if not host["connected"])
    text = f"{len(seen.hosts) - len(away)} of {len(seen.hosts)} hosts are connected"
    if away:
        named = ", ".join(away[:_MAX_NAMED]) + (", ..." if len(away) > _MAX_NAMED else "")
        advice = "on each: host-doctor; systemctl status ri2n-host openvswitch-switch. "
        advice += "A host that is gone for good: ri2n host retire NAME"
        yield "bad", f"{text}; away: {named}", advice
    elif not seen.hosts:
        yield "warning", "no host has connected", "docs/operations.md, ten steps, 5 to 8"
    else:
        yield "ok", text, ""
    versions = Counter(
        str(host["ovs"]) for host in seen.hosts.values() if host["connected"] and host["ovs"]
    )
    for name, count in sorted(versions.items()):
        old = (number_in(name) or MIN_OVS) < MIN_OVS
        text = f"Open vSwitch {name} on {count} hosts"
        advice = "install Open vSwitch 2.17 or newer there"
        yield ("bad", text, advice) if old else ("ok", text, "")


def _web(seen: Examined) -> Iterator[Row]:
    web = seen.web()
    wanted = "--web" in seen.argv
    if web is None:
        if wanted:
            yield "bad", "the web process does not run", "journalctl -u ri2n-controller says why"
        else:
            yield "ok", "it is not asked for (ri2n web, or ri2n controller --web)", ""
        return
    if web.uid == 0:
        yield "warning", f"process {web.pid} runs as root", "docs/security.md: give it a user"
    try:
        listen, status, _ = http_get(web.argv, "/api/v1/", 1 << 16)
    except NotAvailable as error:
        advice = "systemctl restart ri2n-web (or the controller, whose child it may be)"
        yield "bad", f"process {web.pid} does not answer: {error}", advice
        return
    if status >= 500:
        yield "bad", f"{listen} answers with HTTP status {status}", "journalctl -u ri2n-web"
    else:
        size = web.resident_bytes >> 20
        yield "ok", f"process {web.pid} answers on {listen}, {size} MiB", ""


def _configuration(seen: Examined) -> Iterator[Row]:
    given = seen.option("--config")
    if given is None:
        yield "ok", "there is no cluster.yaml, and none is needed", ""
        return
    path = Path(given)
    from ri2n_sdn.apps.config import load_cluster_config

    try:
        load_cluster_config(path)
        found = path.stat()
    except (BadInput, OSError) as error:
        yield "bad", str(error), "correct it, and run ri2n reload"
        return
    if seen.running is not None and not _may_read(found, seen.running):
        text = f"{path}: {user_name(seen.running.uid)} cannot read it: the next reload fails"
        yield "bad", text, f"chmod 644 {path}"
    else:
        yield "ok", f"{path} is right", ""


CHECKS: dict[str, Callable[[Examined], Iterator[Row]]] = {
    "controller": _running,
    "hosts": _hosts,
    "cluster.yaml": _configuration,
    "user": _user,
    "sockets": _sockets,
    "OpenFlow port": _port,
    "TLS": _tls,
    "store": _store,
    "disk": disk,
    "memory": memory,
    "limits": _limits,
    "clock": clock,
    "web process": _web,
    "kernel": kernel,
    "versions": versions,
}


# ---- small questions


def _no_process(seen: Examined) -> Iterator[Row]:
    if seen.state is not None:
        text = f"process {seen.state['controller']['pid']} may not be looked at"
        yield "warning", text, "run ri2n doctor as root"


def _cgroup(seen: Examined, pid: int) -> tuple[int, int] | None:
    """(tasks in use, limit) of a process's control group; None where there is no limit."""
    try:
        lines = (seen.proc / str(pid) / "cgroup").read_text().splitlines()
        path = next(line[3:] for line in lines if line.startswith("0::"))
        folder = Path("/sys/fs/cgroup") / path.lstrip("/")
        return int((folder / "pids.current").read_text()), int((folder / "pids.max").read_text())
    except (OSError, ValueError, StopIteration):
        return None


def _may_read(found: os.stat_result, running: Process) -> bool:
    needed = stat.S_IRGRP if found.st_gid in running.groups else stat.S_IROTH
    if found.st_uid == running.uid:
        needed = stat.S_IRUSR
    return running.uid == 0 or bool(found.st_mode & needed)
