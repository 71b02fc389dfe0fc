# SPDX-License-Identifier: Apache-2.0
"""A lab is a cluster on one machine, which `Lab` makes and removes.

It consists of namespaces, one real Open vSwitch per host, shaped links, a control network and
faults.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from ri2n_lab.cluster import ovs, owners, plan, state
from ri2n_lab.cluster.build import ETC_NETNS, make_namespaces, start_ovs, widen_sockets
from ri2n_lab.cluster.control import await_ready
from ri2n_lab.cluster.fast_paths import FastPaths, find_fast_program
from ri2n_lab.cluster.faults import (
    ON_HOSTS,
    SETS_DOWN,
    Fault,
    apply_faults,
    check_fault,
    same_place,
)
from ri2n_lab.cluster.helpers import Helpers, find_program
from ri2n_lab.cluster.lab_base import LabBase
from ri2n_lab.cluster.namespaces import namespace_exists, remove_namespaces
from ri2n_lab.cluster.run import in_parallel, ip_batch
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology

__all__ = ["Lab"]

PROGRAMS = ("ip", "tc", "ethtool", "nft", "bash", "sysctl")
SEGMENT_HERE = "tso off gso off gro off"
SEGMENT_LATE = "gso on gro on"
GSO_MAX_SEGS = 65535  # the kernel's own
IN_FORCE_S = 30.0
SOFTWARE = ("ri2n", "ovs", "none", "autonomous")
SWITCHES = ("ovs", "linux-bridge", "cable")


class Lab(LabBase):
    """One lab: `Lab.create` or `Lab.load` gives it, `up` makes it, `down` removes it.

    `with Lab.create(t) as lab:` calls `up` and, whatever happens, `down`. The lab belongs to the
    process that made it, until `keep` lets the lab stay without that process.
    """

    # ---- making and finding labs

    @classmethod
    def create(
        cls,
        topology: Topology,
        name: str | None = None,
        *,
        datapath: str = "auto",
        software: str = "ri2n",
        helpers: bool = False,
        helper_options: Sequence[str] = (),
        fast: bool = False,
        userspace_tso: bool = False,
        switches: str = "ovs",
    ) -> Lab:
        """A lab of `topology` of which nothing is made yet.

        * `datapath`: "netdev", "system" or "auto" (system where the kernel has Open vSwitch).
        * `software`: what runs on managed hosts. "ri2n": Open vSwitch and host-up. "ovs": an Open
          vSwitch without a bridge. "none". "autonomous": ri2n-reorder alone, without Open vSwitch
          and controller. Without host-up, a host's address is on its first NIC, or with
          "autonomous" on the helper's TAP.
        * `helpers`: whether ri2n-reorder runs on the hosts, besides Open vSwitch.
          `helper_options` are further options for every helper.
        * `fast`: whether ri2n-fast runs on the hosts, besides Open vSwitch.
        * `userspace_tso`: Open vSwitch's setting of that name, for netdev.
        * `switches`: what switches are. "ovs": bridges of Open vSwitch. "linux-bridge": bridges of
          the kernel, only for topologies with cables between switches. "cable": there is none, a
          cable joins the two NICs that are on it; only where no switch has more.

        Raises NotAvailable without root, Open vSwitch or another program, and when the name is
        taken; BadInput for a bad name, value or combination of values, and for too many hosts.
        """
        if os.geteuid() != 0:
            raise NotAvailable("a lab needs root: use sudo")
        for program in PROGRAMS:
            if shutil.which(program) is None:
                raise NotAvailable(
                    f"{program} is missing: apt install iproute2 ethtool nftables procps"
                )
        ovs.check_ovs()
        if datapath == "auto":
            datapath = "system" if ovs.has_kernel_datapath() else "netdev"
        if datapath not in ("system", "netdev"):
            raise BadInput(f"datapath {datapath!r}: must be auto, system or netdev")
        if software not in SOFTWARE:
            raise BadInput(f"software {software!r}: must be one of {', '.join(SOFTWARE)}")
        if software == "autonomous":
            helpers = True
        plan.check_size(topology)
        if switches not in SWITCHES:
            raise BadInput(f"switches {switches!r}: must be one of {', '.join(SWITCHES)}")
        if switches == "cable":
            plan.check_direct(topology)
        elif switches != "ovs" and not plan.cable_ends(topology):
            raise BadInput(
                f"switches {switches!r}: topology {topology.name} has no cables between switches"
            )
        if helpers and software not in ("ri2n", "autonomous"):
            raise BadInput(f"software {software!r}: has no helpers")
        if helpers:
            find_program()
        if fast and software != "ri2n":
            raise BadInput(f"software {software!r}: has no fast path")
        if fast:
            find_fast_program()
        name = state.check_name(name or state.fresh_name(topology.name))
        if (state.run_dir(name) / "state.json").exists():
            raise NotAvailable(f"lab {name!r} exists already: `ri2n lab down {name}` removes it")
        return cls(
            state.LabState(
                name=name,
                owner=state.owner(),
                phase="making",
                pid=os.getpid(),
                created_s=time.time(),
                datapath=datapath,
                software=software,
                topology=topology.model_dump(mode="json"),
                faults=[],
                helpers=helpers,
                helper_options=list(helper_options),
                fast=fast,
                userspace_tso=userspace_tso,
                switches=switches,
                stays=False,
            )
        )

    @classmethod
    def load(cls, name: str) -> Lab:
        """The lab of this name, whoever made it; NotAvailable when there is none."""
        return cls(state.read_state(name))

    @classmethod
    def all(cls) -> list[Lab]:
        """Every lab on this machine."""
        return [cls(lab_state) for lab_state in state.all_states()]

    @classmethod
    def all_mine(cls) -> list[Lab]:
        """The labs that this user made, also those whose process crashed."""
        return [lab for lab in cls.all() if lab.owner == state.owner()]

    # ---- up and down

    def up(self, progress: Callable[[str], None] | None = None) -> None:
        """Make everything; on any error, and on Ctrl-C, remove again what was made.

        `progress` is called with a word or two before each step.
        """
        tell = progress or (lambda _: None)
        with state.locked(self.name):
            if (self.run_dir / "state.json").exists():
                raise NotAvailable(
                    f"lab {self.name!r} exists already: `ri2n lab down {self.name}` removes it"
                )
            taken = [name for name in self._state.namespaces if namespace_exists(name)]
            if taken:
                raise NotAvailable(
                    f"namespace {taken[0]} exists already: choose another name for the lab"
                )
            self._hold = owners.hold(self.run_dir)
            try:
                state.write_state(self._state)
                tell("namespaces and links")
                make_namespaces(self)
                tell("Open vSwitch")
                start_ovs(self, userspace_tso=self._state.userspace_tso)
                tell("hosts")
                self._host_up()
                widen_sockets(self)
                if self.has_helpers:
                    tell("helpers")
                    in_parallel(self.helpers.start, self.helpers.hosts)
                if self.has_fast:
                    tell("fast paths")
                    in_parallel(self.fast_paths.start, self.fast_paths.hosts)
                self._write_cluster_file()
                self._set(phase="up")
            except BaseException:
                self._remove()
                raise
        tell("up")

    def keep(self) -> None:
        """Let the lab stay until somebody calls `down`, also when this process ends."""
        with state.locked(self.name):
            self._state = state.read_state(self.name)
            self._set(stays=True)
        self._release()

    def down(self) -> None:
        """Remove what `up` made, whatever state it is in, and nothing else.

        To call it twice is no error.
        """
        with state.locked(self.name):
            if (self.run_dir / "state.json").exists():
                with suppress(NotAvailable):
                    self._state = state.read_state(self.name)
                self._set(phase="removing")
            self._remove()

    def down_if_unowned(self) -> bool:
        """Remove the lab if it belongs to nobody; whether it did.

        A lab at which another process works is left alone.
        """
        if not self.unowned:
            return False
        try:
            with state.locked(self.name, wait_s=0.0):
                if not (self.run_dir / "state.json").exists():
                    return False
                self._state = state.read_state(self.name)
                if not self.unowned:
                    return False
                self._set(phase="removing")
                self._remove()
        except state.Busy:
            return False
        return True

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    # ---- faults

    def fault(
        self,
        kind: str,
        *,
        host: str | None = None,
        nic: str | None = None,
        switch: str | None = None,
        port: int | None = None,
        loss: float | None = None,
    ) -> None:
        """Make a fault, besides those that there are; it replaces one of its kind at its place.

        * nic_down, peer_nic_down (host, nic): the NIC is set down, so the switch port loses its
          carrier.
        * blackhole (host, nic): the NIC's switch port drops everything in both directions, and
          keeps its carrier.
        * loss (host, nic, loss in percent): the NIC's links drop that share of frames at random, in
          both directions.
        * switch_down (switch): every port of the switch is a blackhole.
        * cable (switch, port): the cable to another switch in that port carries nothing, in both
          directions.
        * control (host): the host's NIC on the control network is set down, so the controller and
          the host cannot hear each other.

        Raises BadInput for anything that does not exist, NotAvailable when the lab is not up.
        """
        new = check_fault(
            self.topology, kind, host=host, nic=nic, switch=switch, loss=loss, port=port
        )
        self._change_faults(lambda now: [*[old for old in now if not same_place(old, new)], new])

    def restore(
        self,
        kind: str,
        *,
        host: str | None = None,
        nic: str | None = None,
        switch: str | None = None,
        port: int | None = None,
    ) -> None:
        """End one fault; to name one that is not there is no error."""
        ended = check_fault(
            self.topology, kind, host=host, nic=nic, switch=switch, loss=100.0, port=port
        )
        self._change_faults(lambda now: [old for old in now if not same_place(old, ended)])

    def restore_all(self) -> None:
        """End all faults."""
        self._change_faults(lambda _: [])

    def faults(self) -> list[Fault]:
        """The faults that there are, oldest first; also those that another process made."""
        return [Fault(**entry) for entry in state.read_state(self.name).faults]

    def kill_switch(self, host: str) -> None:
        """Kill a host's ovs-vswitchd, then start it and host-up again, as their units do."""
        ovs.kill_switch(self.run_dir / host, self.namespace(host))
        self.host_script(host, "host-up", *self.host_up_arguments(host))
        widen_sockets(self)

    def add_helpers(self) -> None:
        """Give the hosts of a lab that runs ri2n-reorder, and start it where it does not run.

        Raises NotAvailable when the program is missing, or when a host or a helper fails.
        """
        find_program()
        if not self.has_helpers:
            self._set_software(helpers=True)
            try:
                self._prepare_again()
            except BaseException:
                self._set_software(helpers=False)
                raise
        _start_idle(self.helpers)

    def add_fast_paths(self, timeout_s: float = IN_FORCE_S) -> None:
        """Give the hosts of a lab that runs ri2n-fast, and return when its programs are in force.

        Helpers that run are started again, as they must find the TAP that both need. When it fails,
        it is as if it had not been called. Raises NotAvailable when the program is missing, the
        kernel refuses the programs, or a host fails; BadInput for a lab without bridges.
        """
        if self.software != "ri2n":
            raise BadInput(f"software {self.software!r}: has no fast path")
        find_fast_program()
        is_new = not self.has_fast
        try:
            if is_new:
                self._set_software(fast=True)
                self._prepare_again()
            paths = self.fast_paths
            _start_idle(paths)
            in_parallel(lambda host: paths.await_in_force(host, timeout_s), paths.hosts)
        except BaseException:
            if is_new:
                self.remove_fast_paths()
            raise

    def remove_fast_paths(self) -> None:
        """Take ri2n-fast and its programs from the hosts: all frames go by the bridges again.

        Helpers that run are started again, without the TAP that both had. It is no error where
        there are no fast paths. Raises NotAvailable when a host fails.
        """
        if not self.has_fast:
            return
        in_parallel(self.fast_paths.unload, self.fast_paths.hosts)
        self._set_software(fast=False)
        self._prepare_again()
        lines = [f"link set br-ri2n gso_max_segs {GSO_MAX_SEGS}"]
        in_parallel(
            lambda host: ip_batch(lines, self.namespace(host)), self.topology.managed_hosts()
        )
        if self.datapath != "system":
            self._set_offloads(SEGMENT_LATE)

    # ---- the controller

    def start_controller(
        self, *, strategy: str = "max_min", config: Path | None = None, extra: Sequence[str] = ()
    ) -> subprocess.Popen[Any]:
        """Start `ri2n controller` on the control network.

        `config` is its cluster.yaml (None: `cluster_file`), `extra` are further options. Its output
        goes to controller.log in `run_dir`, and its memory is in `.memory` there.
        """
        argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "controller"]
        argv += ["--listen", f"{self.controller_address}:6653"]
        argv += ["--socket", str(self.controller_socket)]
        if "--store" not in extra and "--state-dir" not in extra:
            argv += ["--state-dir", str(self.run_dir / ".memory")]
        argv += ["--config", str(config or self.cluster_file), "--strategy", strategy, *extra]
        with (self.run_dir / "controller.log").open("ab") as log:
            return self.popen("mgmt", argv, stdout=log, stderr=subprocess.STDOUT)

    def wait_ready(self, timeout_s: float = 120.0) -> dict[str, Any]:
        """Wait until the controller is ready, and return its status.

        It is ready when it knows all managed hosts and networks, has settled, and the helpers have
        links. Raises NotAvailable, with what is missing and the end of its log, when that takes
        longer than `timeout_s`.
        """
        return await_ready(
            self.topology, self.controller_socket, self.run_dir / "controller.log", timeout_s
        )

    # ---- how it is made

    def _set(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)
        state.write_state(self._state)

    def _set_software(self, **changes: bool) -> None:
        """Record that the hosts have, or have not, `helpers` or `fast`."""
        with state.locked(self.name):
            self._state = state.read_state(self.name)
            self._set(**changes)

    def _prepare_again(self) -> None:
        """Call host-up again for what the hosts have now. Faults stay.

        Helpers that run are started again: their options and TAPs may have changed.
        """
        helpers = self.helpers
        running = [host for host in helpers.hosts if helpers.pid(host) is not None]
        self._host_up()
        with state.locked(self.name):
            faults = self.faults()
            # host-up has set all NICs up.
            untouched = [fault for fault in faults if fault.kind not in SETS_DOWN]
            apply_faults(self.topology, self.run_dir / "sw", self.namespace, untouched, faults)
        widen_sockets(self)
        in_parallel(helpers.restart, running)

    def _host_up(self) -> None:
        if self.software != "ri2n":
            return
        hosts = self.topology.managed_hosts()
        in_parallel(
            lambda host: self.host_script(host, "host-up", *self.host_up_arguments(host)), hosts
        )
        if self.datapath == "system" or self.has_fast:
            # A shaper counts frames, so the bridge must cut super-packets into frames before it.
            self._set_offloads(SEGMENT_HERE)
        if self.has_fast:
            # The fast path takes what TCP makes before the bridge's device would cut it.
            in_parallel(
                lambda host: ip_batch(["link set br-ri2n gso_max_segs 1"], self.namespace(host)),
                hosts,
            )

    def _set_offloads(self, words: str) -> None:
        in_parallel(
            lambda host: self.exec(host, ["ethtool", "-K", "br-ri2n", *words.split()]),
            self.topology.managed_hosts(),
        )

    def _write_cluster_file(self) -> None:
        self.cluster_file.write_text(
            yaml.safe_dump(plan.cluster_config(self.topology), sort_keys=False)
        )

    def _remove(self) -> None:
        remove_namespaces(self._state.namespaces)
        with state.locked(""):
            for name in self._state.namespaces:
                shutil.rmtree(ETC_NETNS / name, ignore_errors=True)
            with suppress(OSError):
                ETC_NETNS.rmdir()  # only when empty
        for child in self._children:
            # `remove_namespaces` has ended it, unless it left for a namespace of its own.
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        self._children.clear()
        state.remove_folder(self.name)
        self._release()

    def _release(self) -> None:
        """Give up the lock by which this process owns the lab."""
        if self._hold is not None:
            os.close(self._hold)
            self._hold = None

    def _change_faults(self, change: Callable[[list[Fault]], list[Fault]]) -> None:
        with state.locked(self.name):
            self._state = state.read_state(self.name)
            if self.phase != "up":
                raise NotAvailable(f"lab {self.name!r} is not up")
            before = [Fault(**entry) for entry in self._state.faults]
            after = change(before)
            if self.switches != "ovs" and any(fault.kind not in ON_HOSTS for fault in after):
                raise BadInput(
                    f"only switches of Open vSwitch can have faults, those of lab {self.name} "
                    "cannot"
                )
            self._set(faults=[vars(entry) for entry in after])
            apply_faults(self.topology, self.run_dir / "sw", self.namespace, before, after)


def _start_idle(programs: Helpers | FastPaths) -> None:
    """Start a program where it belongs and does not run."""
    in_parallel(programs.start, [host for host in programs.hosts if programs.pid(host) is None])
