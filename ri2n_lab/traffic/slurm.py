# SPDX-License-Identifier: Apache-2.0
"""Run a real Slurm cluster in network namespaces: munged, slurmctld, and a slurmd on each node.

Nothing of the machine's own Slurm is used or changed, and several clusters may run at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from ri2n_lab.cluster.run import run
from ri2n_sdn.errors import NotAvailable

__all__ = ["GOING_STATES", "Node", "SlurmCluster", "check_slurm", "unified_tree"]

PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "munged": "munge",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
ENTER = Path(__file__).with_name("slurm-node")
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
START_WAIT_S = 120.0
KILL_WAIT_S = 30.0
HOLD_TRIES = 100
GOING_STATES = frozenset({"", "PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING"})
"""The states of jobs of which one cannot say that they have ended."""

SLURM_CONF = """\
ClusterName=ri2n
SlurmctldHost={head}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
PrologFlags=Alloc,Contain
PrologEpilogTimeout=120
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/ctl
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=verbose
SlurmctldPort=6817
SlurmdPort=6818
SrunPortRange=60001-60500
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MailProg=/bin/true
KillWait=2
MessageTimeout=30
ReturnToService=2
SlurmctldTimeout=300
SlurmdTimeout=300
TmpFS={folder}/tmp/%n
{extra}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=FORCE:4
"""
# Slurm's plugin for the unified tree does not run where other trees are mounted, too. The one for
# the first version needs the freezer alone, which can be mounted on both kinds of machine.
CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint={folder}/cgroup
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=no
ConstrainDevices=no
"""
# IgnoreSystemd: the namespaces have none. No controller is needed, since nothing is constrained.
ONE_TREE_CONF = """\
CgroupPlugin=cgroup/v2
IgnoreSystemd=yes
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=no
ConstrainDevices=no
"""
ONE_TREE = Path(__file__).with_name("one-tree.c")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster: its name in Slurm, its network namespace and its IPv4 address.

    Slurm names cgroups by nodes, and all nodes share the machine's cgroups. So the name must be one
    that no other cluster on the machine has.
    """

    name: str
    namespace: str
    address: str


@dataclass
class _Daemon:
    """A started daemon, and a file descriptor of its mount namespace.

    What it starts is in the same namespace, also after the daemon was killed. While the file is
    open, no other namespace gets its number.
    """

    process: subprocess.Popen[bytes]
    mounts: int


def unified_tree() -> Path:
    """Where the unified tree of cgroups is mounted; NotAvailable when it is nowhere."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return Path(line.split()[1])
    raise NotAvailable("the unified tree of cgroups is not mounted")


def check_slurm() -> None:
    """Raise NotAvailable, with what to install, unless Slurm and munge are here and can run."""
    path = f"{os.environ.get('PATH', '')}:{SBIN}"
    missing = sorted(
        {package for name, package in PROGRAMS.items() if not shutil.which(name, path=path)}
    )
    if missing:
        raise NotAvailable(f"Slurm is missing: apt install {' '.join(missing)}")
    controllers = {
        line.split()[0]: line.split()[3]
        for line in Path("/proc/cgroups").read_text().splitlines()[1:]
    }
    if controllers.get("freezer") != "1":
        raise NotAvailable("the kernel has no freezer for cgroups, which Slurm needs here")


@dataclass
class SlurmCluster:
    """A Slurm cluster; `with` starts it, and ends and removes all of it.

    * `head` runs slurmctld, and users submit jobs there. `nodes` run slurmd.
    * `users` are added to the machine's users inside the cluster: name -> uid.
    * `settings` are further lines of slurm.conf, `plugins` are the lines of plugstack.conf.
      `{folder}` in them is the cluster's folder.
    * `node_files` are the texts of ri2n.conf, by node. `etc_files` are further files beside
      slurm.conf, by name.
    * `one_tree`: the nodes see the unified tree of cgroups alone, and Slurm keeps its own cgroups
      in it, as on a Debian 12 without changes. The kernel's other trees are hidden from slurmd by
      a library that gcc builds.
    """

    head: Node
    nodes: Sequence[Node]
    users: Mapping[str, int]
    settings: str = ""
    plugins: str = ""
    node_files: Mapping[str, str] = field(default_factory=dict)
    etc_files: Mapping[str, str] = field(default_factory=dict)
    one_tree: bool = False

    def __post_init__(self) -> None:
        check_slurm()
        self._daemons: list[tuple[str, _Daemon]] = []
        self._munged: subprocess.Popen[bytes] | None = None
        # Users must be able to enter it.
        self.folder = Path(tempfile.mkdtemp(prefix="ri2n-slurm-"))
        self.folder.chmod(0o755)

    def __enter__(self) -> SlurmCluster:
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

    # ---- daemons

    def start(self) -> None:
        """Write the configuration, start all daemons, and wait until all nodes are idle.

        Raises NotAvailable, with the end of the logs, when that takes too long.
        """
        self._write_files()
        if self.one_tree:
            self._hold_slice()
        self._start_munged()
        self.start_slurmctld()
        for node in self.nodes:
            self.start_slurmd(node.name)
        self.wait_idle()

    def stop(self) -> None:
        """End every process of the cluster and remove its folder and cgroups.

        To call it twice is no error.
        """
        self._kill([daemon.mounts for _, daemon in self._daemons])
        for _, daemon in self._daemons:
            daemon.process.wait()
            os.close(daemon.mounts)
        self._daemons.clear()
        if self._munged is not None:
            self._munged.kill()
            self._munged.wait()
            self._munged = None
        if (self.folder / "cgroup" / "freezer").is_dir():
            for node in self.nodes:
                # Only in a namespace of its own the freezer is mounted.
                self._enter(self.head, ["find", f"{self.folder}/cgroup/freezer/slurm_{node.name}",
                    "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], check=False)  # fmt: skip
        if self.one_tree:
            self._drop_slice()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_slurmctld(self) -> None:
        """Start slurmctld, which knows the jobs that it knew before."""
        self._start(self.head, ["slurmctld", "-D"], "slurmctld")

    def start_slurmd(self, name: str) -> None:
        """Start the slurmd of a node; jobs that run there go on."""
        self._start(self.node(name), ["slurmd", "-D"], "slurmd")

    def kill_daemon(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a node's slurmd, or with the name of the head slurmctld, by that signal.

        Nothing else is ended: jobs run on. slurmctld forgets what has just begun, unless the signal
        is SIGTERM.
        """
        for owner, daemon in self._daemons:
            if owner == name and daemon.process.poll() is None:
                daemon.process.send_signal(number)
                daemon.process.wait()

    def power_off(self, name: str) -> None:
        """Kill everything that Slurm runs on a node, and empty its `state-dir`, as in /run."""
        self._kill([daemon.mounts for owner, daemon in self._daemons if owner == name])
        for owner, daemon in self._daemons:
            if owner == name:
                daemon.process.wait()
        state = self.folder / "nodes" / name / "state"
        for path in state.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def wait_idle(self, timeout_s: float = START_WAIT_S) -> None:
        """Wait until no job is on any node, and every node may have one."""
        deadline_s = time.monotonic() + timeout_s
        while set(states := self.node_states()) != {"idle"} or len(states) != len(self.nodes):
            if time.monotonic() > deadline_s:
                raise NotAvailable(f"nodes are {states}: {self.logs()}")
            time.sleep(0.1)

    # ---- what it does

    def node(self, name: str) -> Node:
        """The node of that name; KeyError for an unknown one."""
        return {node.name: node for node in self.nodes}[name]

    def run_as(
        self, user: str, argv: Sequence[str], *, check: bool = True, timeout_s: float = 120.0,
        stdin: str | None = None, env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run a command of a user on the head, in a folder that users may write to.

        Raises CommandFailed when it takes too long and, with `check`, when it fails.
        """
        uid = str({"root": 0, **self.users}[user])
        words = [f"{name}={value}" for name, value in (env or {}).items()]
        become = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"]
        become += ["env", "-C", str(self.folder / "work"), "HOME=/tmp", *words]
        return self._enter(
            self.head, [*become, *argv], check=check, timeout_s=timeout_s, stdin=stdin
        )

    def run_on(
        self, name: str, argv: Sequence[str], *, check: bool = True, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of root on a node, with the mounts that its slurmd has."""
        return self._enter(self.node(name), argv, check=check, timeout_s=timeout_s)

    def submit(self, user: str, script: str, *options: str) -> int:
        """Submit a batch script, and return the number of the job.

        What it prints goes to work/job-NUMBER. Raises CommandFailed when Slurm refuses it.
        """
        output = f"--output={self.folder}/work/job-%j"
        argv = ["sbatch", "--parsable", output, *options]
        return int(self.run_as(user, argv, stdin="#!/bin/bash\n" + script).stdout.split(";")[0])

    def output(self, job: int) -> str:
        """What a batch job has printed until now."""
        path = self.folder / "work" / f"job-{job}"
        return path.read_text(errors="replace") if path.exists() else ""

    def state(self, job: int) -> str:
        """The state of a job, as RUNNING; empty when slurmctld does not answer."""
        shown = self.run_as("root", ["scontrol", "-o", "show", "job", str(job)], check=False)
        words = dict(word.partition("=")[::2] for word in shown.stdout.split())
        return words.get("JobState", "")

    def node_states(self) -> list[str]:
        """The states of the nodes, in no order; empty when slurmctld does not answer."""
        shown = self.run_as("root", ["sinfo", "-h", "-N", "-o", "%T"], check=False)
        return shown.stdout.split() if shown.returncode == 0 else []

    def logs(self, lines: int = 15) -> str:
        """The last lines of all logs."""
        texts = []
        for path in sorted((self.folder / "log").glob("*")):
            last = path.read_text(errors="replace").splitlines()[-lines:]
            texts.append("\n".join([f"== {path.name}", *last]))
        return "\n".join(texts)

    # ---- how it is done

    def _write_files(self) -> None:
        folder = self.folder
        for name in ("etc", "run", "spool", "ctl", "log", "munge", "work", "tmp", "nodes", "state"):
            (folder / name).mkdir()
        (folder / "cgroup" / "freezer").mkdir(parents=True)
        (folder / "work").chmod(0o1777)
        (folder / "munge").chmod(0o755)
        (folder / "munge" / "key").write_bytes(os.urandom(1024))
        (folder / "munge" / "key").chmod(0o400)
        for node in self.nodes:
            (folder / "tmp" / node.name).mkdir()
            (folder / "tmp" / node.name).chmod(0o1777)
            (folder / "nodes" / node.name / "state").mkdir(parents=True)
            text = self.node_files.get(node.name, "").replace("{folder}", str(folder))
            (folder / "nodes" / node.name / "ri2n.conf").write_text(text)
        etc = folder / "etc"
        (etc / "ri2n.conf").touch()
        for name, text in self.etc_files.items():
            (etc / name).write_text(text)
        users = "".join(
            f"{name}:x:{uid}:{uid}::/tmp:/bin/bash\n" for name, uid in self.users.items()
        )
        groups = "".join(f"{name}:x:{uid}:\n" for name, uid in self.users.items())
        (etc / "passwd").write_text(Path("/etc/passwd").read_text() + users)
        (etc / "group").write_text(Path("/etc/group").read_text() + groups)
        lines = [
            f"NodeName={node.name} NodeAddr={node.address} CPUs=4 RealMemory=500 State=UNKNOWN"
            for node in self.nodes
        ]
        values = {
            "folder": folder,
            "head": self.head.name,
            "address": self.head.address,
            "nodes": "\n".join(lines),
        }
        extra = self.settings.replace("{folder}", str(folder))
        (etc / "slurm.conf").write_text(SLURM_CONF.format(extra=extra, **values))
        cgroup_conf = ONE_TREE_CONF if self.one_tree else CGROUP_CONF.format(folder=folder)
        (etc / "cgroup.conf").write_text(cgroup_conf)
        (etc / "plugstack.conf").write_text(self.plugins.replace("{folder}", str(folder)) + "\n")

    def scope(self, name: str) -> Path:
        """The cgroup of all jobs of a node, with `one_tree`, as this machine sees it."""
        return unified_tree() / "system.slice" / f"{name}_slurmstepd.scope"

    def _holder(self) -> Path:
        """A cgroup by which no other cluster removes system.slice while this one needs it."""
        return unified_tree() / "system.slice" / f"{self.folder.name}.hold"

    def _hold_slice(self) -> None:
        """Make what Slurm's plugin cgroup/v2 finds on a machine with systemd and no other tree."""
        library = self.folder / "one-tree.so"
        gcc = shutil.which("gcc")
        if gcc is None:
            raise NotAvailable("gcc is missing: apt install gcc libc6-dev")
        run([gcc, "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(ONE_TREE), "-ldl"])
        for _ in range(HOLD_TRIES):
            with suppress(FileNotFoundError):  # another cluster has just removed the slice
                self._holder().mkdir(parents=True, exist_ok=True)
                return
        raise NotAvailable(f"{self._holder()} cannot be made")

    def _drop_slice(self) -> None:
        """Remove the nodes' cgroups, and the slice where nobody else has one in it."""
        for top in (*(self.scope(node.name) for node in self.nodes), self._holder()):
            for path in sorted(top.glob("**/"), reverse=True):
                path.rmdir()
        with suppress(OSError):
            self._holder().parent.rmdir()

    def _start_munged(self) -> None:
        munge = self.folder / "munge"
        options = {
            "key-file": "key",
            "socket": "socket",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        argv = ["munged", "--foreground", "--force", "--num-threads=2"]
        argv += [f"--{option}={munge / name}" for option, name in options.items()]
        self._munged = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self._environment()
        )
        deadline_s = time.monotonic() + START_WAIT_S
        while not (munge / "socket").exists():
            if self._munged.poll() is not None or time.monotonic() > deadline_s:
                raise NotAvailable(f"munged does not start: {(munge / 'log').read_text()[-400:]}")
            time.sleep(0.02)

    def _start(self, node: Node, argv: Sequence[str], program: str) -> None:
        with (self.folder / "log" / f"{node.name}.out").open("ab") as output:
            process = subprocess.Popen(
                self._entered(node, argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(),
                start_new_session=True,
            )
        deadline_s = time.monotonic() + START_WAIT_S
        while self._name_of(process.pid) != program:
            if process.poll() is not None or time.monotonic() > deadline_s:
                process.kill()
                process.wait()
                raise NotAvailable(f"{program} of {node.name} does not start: {self.logs()}")
            time.sleep(0.01)
        mounts = os.open(f"/proc/{process.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self._daemons.append((node.name, _Daemon(process, mounts)))

    @staticmethod
    def _name_of(pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            return ""

    def _kill(self, mounts: Iterable[int]) -> None:
        """Kill every process whose mount namespace is one of those that are open.

        Raises NotAvailable when one does not end.
        """
        inodes = {os.fstat(number).st_ino for number in mounts}
        deadline_s = time.monotonic() + KILL_WAIT_S
        while inodes and (pids := [pid for pid in _all_pids() if _mounts(pid) in inodes]):
            if time.monotonic() > deadline_s:
                raise NotAvailable(f"processes {pids} of Slurm do not end")
            for pid in pids:
                with suppress(ProcessLookupError):
                    handle = os.pidfd_open(pid)
                    try:
                        if _mounts(pid) in inodes:
                            signal.pidfd_send_signal(handle, signal.SIGKILL)
                    finally:
                        os.close(handle)
            for _, daemon in self._daemons:
                daemon.process.poll()  # a zombie that is not waited for would stay
            time.sleep(0.02)

    def _entered(self, node: Node, argv: Sequence[str]) -> list[str]:
        return [str(ENTER), node.namespace, node.name, str(self.folder), *argv]

    def _enter(
        self, node: Node, argv: Sequence[str], *, check: bool = True, timeout_s: float = 60.0,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        return run(
            self._entered(node, argv),
            check=check,
            timeout_s=timeout_s,
            stdin=stdin,
            env=self._environment(),
        )

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{SBIN}:/usr/local/bin:/usr/bin:/bin",
            "SLURM_CONF": str(self.folder / "etc" / "slurm.conf"),
            "LANG": "C.UTF-8",
        }


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _mounts(pid: int) -> int | None:
    """The number of a process's mount namespace; None when the process has ended."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").stat().st_ino
    except OSError:
        return None
