# SPDX-License-Identifier: Apache-2.0
"""Jobs with the controller and Open vSwitch: declarations, paths, walls, orders and answers."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.errors import BadInput, NotAvailable
from tests.problem_texts import problem_texts
from tests.waiting import wait_until

from .declarations import (
    answers,
    class_mac,
    declare,
    job,
    nudge,
    orders,
    replace_all,
    withdraw,
    withdraw_all,
)
from .frames import Capture, await_problems, udp
from .raft_servers import leader, raft_cluster
from .store_servers import Server

HOSTS = "ABCD"
NETWORKS = ("n0", "n1", "n2")


@dataclass
class Site:
    """A sandbox, the options of its controllers, and the servers of a common store, if any."""

    sandbox: Sandbox
    options: tuple[str, ...]
    servers: dict[str, Server]


@pytest.fixture(
    scope="module", params=["own server", pytest.param("three servers", marks=pytest.mark.long)]
)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Four hosts on three networks under a controller, which is settled."""
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        if request.param == "three servers":
            servers = stack.enter_context(raft_cluster(tmp_path_factory.mktemp("raft")))
        targets = ",".join(server.target for server in servers.values())
        options = ("--store", targets) if servers else ()
        hosts = {name: list(NETWORKS) for name in HOSTS}
        made = stack.enter_context(Sandbox(hosts, {"R": "n0"}))
        made.start_controller(strategy="max_min", extra=options)
        made.wait_settled()
        yield Site(made, options, servers)
        assert "Traceback" not in made.log()
        errors = [name for name in made.ask("status")["counters"] if "errors" in name]
        assert not errors, f"{errors} {made.log()[-20000:]}"


@pytest.fixture
def sandbox(site: Site) -> Iterator[Sandbox]:
    """The same; afterwards no host declares a job and nothing is ordered.

    Of three servers of the store, the leader is killed before the test and comes back after it.
    """
    running = site.sandbox
    killed = site.servers[leader(site.servers)] if site.servers else None
    if killed is not None:
        killed.kill()
    yield running
    if killed is not None:
        killed.start()
    for order in running.ask("job_list")["jobs"]:
        if order["source"] == "order":
            running.ask("job_end", id=order["id"])
    for host in HOSTS:
        withdraw_all(running, host)
    wait_until(lambda: not running.ask("job_list")["jobs"], "jobs stay though nobody declares them")
    wait_until(
        lambda: not any(answers(running, host) or orders(running, host) for host in HOSTS),
        "answers stay",
    )
    await_problems(running)


def state(sandbox: Sandbox, name: str) -> str:
    """A job's state; empty when there is no such job."""
    return next((j["state"] for j in sandbox.ask("job_list")["jobs"] if j["id"] == name), "")


def await_installed(sandbox: Sandbox, *names: str) -> None:
    for name in names:
        wait_until(
            lambda name=name: state(sandbox, name) == "installed",  # type: ignore[misc]
            lambda: str(sandbox.ask("job_list")),
        )


def learned(sandbox: Sandbox, network: str) -> str:
    """The name by which the controller knows a network of the sandbox."""
    nic = f"A:A-e{NETWORKS.index(network)}"
    return next(
        str(each["id"]) for each in sandbox.ask("status")["networks"] if nic in each["nics"]
    )


def sent(sandbox: Sandbox, host: str) -> list[int]:
    """The frames that a host has sent into each network so far."""
    return [
        int(sandbox.ovs.vsctl("get", "interface", f"{host}-e{index}", "statistics:tx_packets") or 0)
        for index in range(len(NETWORKS))
    ]


def networks_used(sandbox: Sandbox, source: str, frames: list[str]) -> set[str]:
    """The networks in which a host sends these frames, by the counters of table 30."""

    def counts() -> dict[str, int]:
        rows = sandbox.ovs.run(
            "ovs-ofctl", "-O", "OpenFlow15", "dump-flows", source, "table=30"
        ).splitlines()
        result = dict.fromkeys(NETWORKS, 0)
        for line in rows:
            if "output:" in line:
                port = int(line.rpartition("output:")[2].split(",")[0])
                packets = int(line.partition("n_packets=")[2].partition(",")[0])
                result[NETWORKS[port - 1]] += packets
        return result

    before = counts()
    sandbox.receive(source, *frames)
    wait_until(
        lambda: sum(counts().values()) - sum(before.values()) >= len(frames),
        "the frames are not counted",
    )
    after = counts()
    return {name for name in NETWORKS if after[name] > before[name]}


def secret_addresses(sandbox: Sandbox, network: str) -> set[str]:
    """The addresses that a switch knows and that are none of a host or a NIC."""
    known = {sandbox.mac(name) for name in (*HOSTS, "R")}
    known |= {sandbox.nic_mac(name, port) for name in HOSTS for port in (1, 2, 3)}
    rows = sandbox.ovs.appctl("fdb/show", network).splitlines()[1:]
    return {row.split()[2] for row in rows} - known


def flows(sandbox: Sandbox, source: str, target: str, number: int = 0, *, n: int = 24) -> list[str]:
    """UDP packets of several flows from a host's own port; of a class where `number` is one."""
    mac = class_mac(number) if number else sandbox.mac(source)
    return [udp(mac, sandbox.mac(target), (port, 9)) for port in range(1, n + 1)]


def delivered(sandbox: Sandbox, source: str, target: str, number: int = 0) -> None:
    """Frames arrive, each once, with the sender's own address."""
    capture = Capture(sandbox)
    sandbox.receive(source, *flows(sandbox, source, target, number))
    capture.expect({target: flows(sandbox, source, target)})


# The controller gets what the hosts with these datapath IDs declare when a file is there, not
# before. All else that they answer comes at once.
LATE = """
import threading, time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
import ri2n_sdn.apps.jobs as jobs
begin = jobs.Reading.begin
def late(channel, believed):
    reading = begin(channel, believed)
    if channel.datapath.id not in {ids} or Path({file!r}).exists():
        return reading
    held = Future()
    def answer():
        while not Path({file!r}).exists():
            time.sleep(0.01)
        try:
            held.set_result(reading.declared.result())
        except Exception as error:  # the connection has ended
            held.set_exception(error)
    threading.Thread(target=answer, daemon=True).start()
    return replace(reading, declared=held)
jobs.Reading = SimpleNamespace(begin=late)
"""


STOPPED_S = 2.0
# So few flows do not make a pair active.
FEW = 4
# What is counted in the first ones is no traffic yet.
ROUNDS = 8


@pytest.mark.parametrize(
    ("late", "stopped"),
    [
        pytest.param("", False, id="all answer"),
        pytest.param("BD", False, id="two answer late"),
        pytest.param("", True, id="Open vSwitch stands still", marks=pytest.mark.long),
    ],
)
def test_a_controller_that_starts_anew_finds_the_jobs_and_changes_nothing(
    sandbox: Sandbox, site: Site, late: str, stopped: bool, tmp_path: Path
) -> None:
    """Nobody waits for a host that answers late, and others get no row on account of it."""
    # Of two jobs, the one ends that has the first network. So the other one has a network that it
    # would not get if it began now.
    for number, name in ((2, "over"), (1, "kept")):
        for host in "AB":
            declare(sandbox, host, job(name, number, "AB", "exclusive"))
        await_installed(sandbox, name)
    for host in "AB":
        withdraw(sandbox, host, 2)
    for host in "CD":
        declare(sandbox, host, job("walls", 1, "CD", "isolated"))
    await_installed(sandbox, "kept", "walls")
    wait_until(lambda: not state(sandbox, "over"), "the job that has ended stays")
    used = networks_used(sandbox, "A", flows(sandbox, "A", "B", 1, n=FEW))
    await_idle(sandbox)
    sandbox.kill_controllers()
    # The pair falls silent before the next controller begins, which sees its counters grow: Open
    # vSwitch adds what it has sent to the counters of rows a little later.
    delivered(sandbox, "A", "B", 1)
    answer = tmp_path / "answer"
    ids = [sandbox.number[host] for host in late]
    before = LATE.format(ids=ids, file=str(answer)) if late else ""
    sandbox.start_controller(strategy="max_min", before=before, extra=site.options)
    if late or stopped:
        await_connected(sandbox)
    if late:
        await_decided_without(sandbox, late)
        answer.touch()
    if stopped:
        # The controller is somewhere between its first question and its first decision.
        stand_still(int((sandbox.folder / "ovs-vswitchd.pid").read_text()), STOPPED_S)
    sandbox.wait_settled()
    await_installed(sandbox, "kept", "walls")
    sandbox.ovs.appctl("revalidator/purge")
    wait_until(
        lambda: sandbox.ask("status")["counters"].get("cycles", 0) >= ROUNDS,
        "the counters are not read",
    )
    counters = sandbox.ask("status")["counters"]
    sent = (counters.get("flow_mods", 0), counters.get("group_mods", 0))
    assert sent == (0, 0), f"{counters} {sandbox.log()[-20000:]}"
    assert networks_used(sandbox, "A", flows(sandbox, "A", "B", 1, n=FEW)) == used


def await_idle(sandbox: Sandbox) -> None:
    """Wait until all pairs use shared slot tables, and groups that no row uses are gone.

    A pair whose traffic has ended goes back to a shared table after a while, and its group goes
    after its rows. That is no matter of jobs, and the next controller would do what is left of it.
    """

    def unused(host: str) -> set[str]:
        groups = sandbox.ovs.ofctl("dump-groups", host)
        rows = sandbox.ovs.run("ovs-ofctl", "-O", "OpenFlow15", "dump-flows", host)
        there = set(re.findall(r"group_id=(\d+)", groups))
        return there - set(re.findall(r"(?:group:|watch_group:)(\d+)", groups + rows))

    def idle() -> bool:
        status = sandbox.ask("status")
        return (
            bool(status["settled"])
            and not any(pair["active"] for pair in status["pairs"])
            and not any(map(unused, HOSTS))
        )

    wait_until(idle, "pairs stay active though nothing is sent")


def stand_still(pid: int, seconds: float) -> None:
    """Stop a process, and let it go on after that time."""
    os.kill(pid, signal.SIGSTOP)
    try:
        ends_s = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() > ends_s, "time stands still")
    finally:
        os.kill(pid, signal.SIGCONT)


def await_connected(sandbox: Sandbox) -> None:
    """Wait until all hosts have connected to a controller that has just started."""

    def asked() -> dict[str, Any]:
        try:
            return sandbox.ask("status")
        except NotAvailable:
            return {}

    def all_connected() -> bool:
        hosts = asked().get("hosts", ())
        return len(hosts) == len(HOSTS) and all(host["connected"] for host in hosts)

    wait_until(lambda: asked(), "the controller does not answer")
    sandbox.hurry()
    wait_until(all_connected, lambda: str(asked()))


def await_decided_without(sandbox: Sandbox, late: str) -> None:
    """Wait until the controller has decided on jobs, though it does not know those of some hosts.

    All other hosts were read again afterwards, so their rows have been planned.
    """
    wait_until(lambda: state(sandbox, "kept"), lambda: str(sandbox.ask("job_list")))
    read = [host for host in HOSTS if host not in late]
    before = sandbox.ask("status")["counters"].get("declarations_read", 0)
    for _ in range(3):
        for host in read:
            nudge(sandbox, host)
    wait_until(
        lambda: sandbox.ask("status")["counters"].get("declarations_read", 0) >= before + len(read),
        lambda: str(sandbox.ask("status")["counters"]),
    )


def test_a_job_with_named_paths_uses_them_alone(sandbox: Sandbox) -> None:
    document = job("one", 3, "AB", "paths", paths=[learned(sandbox, "n1")])
    for host in "AB":
        declare(sandbox, host, document)
    await_installed(sandbox, "one")
    assert networks_used(sandbox, "A", flows(sandbox, "A", "B", 3)) == {"n1"}
    assert networks_used(sandbox, "A", flows(sandbox, "A", "B")) == set(NETWORKS)
    delivered(sandbox, "A", "B", 3)
    wait_until(
        lambda: answers(sandbox, "A").get(3, {}).get("state") == "installed",
        lambda: str(answers(sandbox, "A")),
    )
    withdraw(sandbox, "A", 3)
    withdraw(sandbox, "B", 3)
    wait_until(lambda: not state(sandbox, "one"), "the job has not ended")
    wait_until(
        lambda: networks_used(sandbox, "A", flows(sandbox, "A", "B", 3)) == set(NETWORKS),
        "the class of a job that has ended still has its paths",
    )
    delivered(sandbox, "A", "B", 3)
    last = sandbox.ask("job_history")["jobs"][0]
    assert (last["id"], last["user"], last["hosts"]) == ("one", "alice", ["A", "B"])


def test_two_exclusive_jobs_have_a_network_each_and_everybody_the_third(sandbox: Sandbox) -> None:
    for host in "AB":
        declare(sandbox, host, job("one", 1, "AB", "exclusive"))
        declare(sandbox, host, job("two", 2, "AB", "exclusive", user="bob", uid=20002))
    await_installed(sandbox, "one", "two")
    assert sandbox.ask("status", pairs=False)["jobs"] == {"installed": 2}
    used = [networks_used(sandbox, "A", flows(sandbox, "A", "B", number)) for number in (1, 2, 0)]
    assert all(len(networks) == 1 for networks in used)
    assert set().union(*used) == set(NETWORKS)
    # A host outside of the jobs leaves their networks alone at their hosts.
    assert networks_used(sandbox, "C", flows(sandbox, "C", "A")) == used[2]
    assert networks_used(sandbox, "C", flows(sandbox, "C", "D")) == set(NETWORKS)
    why = sandbox.ask("explain", src="A", dst="B", job="one")["why"]
    assert "packets of job one of alice (exclusive) use 1 of 3 paths" in why[0], why
    flow = {"protocol": 17, "sport": 1, "dport": 9, "src_ip": "10.77.0.1", "dst_ip": "10.77.0.2"}
    verdict = sandbox.ask("explain", src="A", dst="B", job="two", flow=flow)
    assert NETWORKS[int(verdict["path"]["own"][-1])] in used[1], verdict
    why = sandbox.ask("explain", src="A", dst="B")["why"]
    assert any("one, two have paths for themselves" in line for line in why), why
    third = job("three", 4, "AB", "exclusive", user="carol", uid=20003)
    for host in "AB":
        declare(sandbox, host, third)
    wait_until(lambda: state(sandbox, "three") == "refused", "a third job is not refused")
    assert networks_used(sandbox, "A", flows(sandbox, "A", "B", 4)) == used[2]
    assert any("three" in text for text in problem_texts(sandbox.ask("status")))
    for number, networks in ((1, used[0]), (2, used[1])):
        assert networks_used(sandbox, "B", flows(sandbox, "B", "A", number)) == networks
        delivered(sandbox, "A", "B", number)


def test_an_isolated_jobs_hosts_reach_each_other_only(sandbox: Sandbox) -> None:
    for network in NETWORKS:  # which may still know the addresses of a job that has ended
        sandbox.ovs.appctl("fdb/flush", network)
    for host in "AB":
        declare(sandbox, host, job("closed", 1, "AB", "isolated"))
    await_installed(sandbox, "closed")
    # Switches know the job's addresses before a frame goes to one, so they never flood one.
    secret = {network: secret_addresses(sandbox, network) for network in NETWORKS}
    assert all(len(addresses) == 2 for addresses in secret.values()), secret
    delivered(sandbox, "A", "B")
    delivered(sandbox, "B", "A", 1)
    assert secret == {network: secret_addresses(sandbox, network) for network in NETWORKS}
    delivered(sandbox, "C", "D")
    capture = Capture(sandbox)
    for source, target in (("A", "C"), ("C", "A"), ("A", "R"), ("R", "B"), ("D", "B")):
        macs = sandbox.mac(source), sandbox.mac(target)
        sandbox.receive(source, udp(*macs, (1, 2)), udp(*macs, (3, 4), ipv6=True))
    # Frames are processed in order: when the last one has arrived, the others have not.
    last = udp(sandbox.mac("C"), sandbox.mac("D"), (77, 77))
    sandbox.receive("C", last)
    capture.expect({"D": [last]})
    for name in ("A", "B", "C", "R"):
        assert not [frame for frame in capture.new(name) if frame[24:28] in ("0800", "86dd")]
    wait_until(
        lambda: sandbox.ask("status", pairs=False)["settled"],
        "the controller's own connection does not go on",
    )
    why = sandbox.ask("explain", src="A", dst="C")["why"]
    assert "A belongs to job closed of alice alone (isolated)" in why[0], why


def test_a_host_is_believed_only_about_itself(sandbox: Sandbox) -> None:
    for host in "AB":
        declare(sandbox, host, job("mine", 1, "AB", "isolated"))
    await_installed(sandbox, "mine")
    declare(sandbox, "C", job("mine", 1, "ABC", "isolated"))
    capture = Capture(sandbox)
    wait_until(lambda: answers(sandbox, "C"), "C gets no answer")
    sandbox.receive("C", *flows(sandbox, "C", "A"))
    last = udp(sandbox.mac("A"), sandbox.mac("B"), (77, 77))
    sandbox.receive("A", last)
    capture.expect({"B": [last]})


@pytest.mark.parametrize(
    "text",
    [b"", b"\xff\xfe", b"{}", b"[" * 500, b'{"v": 2}', b"x" * 2000],
    ids=["empty", "no text", "no keys", "nested", "another version", "no JSON"],
)
def test_a_declaration_that_makes_no_sense_is_a_line_in_status(
    sandbox: Sandbox, text: bytes
) -> None:
    declare(sandbox, "C", text or b"\0", 7)
    wait_until(
        lambda: any("declaration of C" in line for line in problem_texts(sandbox.ask("status"))),
        lambda: str(problem_texts(sandbox.ask("status"))),
    )
    delivered(sandbox, "A", "C")
    withdraw(sandbox, "C", 7)
    await_problems(sandbox)


def await_answer(sandbox: Sandbox, host: str, document: dict[str, Any]) -> None:
    """Wait as `job-begin --wait` does."""
    wanted = {"id": document["id"], "state": "installed"}
    wait_until(
        lambda: wanted.items() <= answers(sandbox, host).get(document["class"], {}).items(),
        lambda: f"{answers(sandbox, host)} {sandbox.ask('job_list')}",
    )


def audit_repairs(sandbox: Sandbox) -> int:
    """How often an audit found that a row, such as an answer, was missing."""
    return int(sandbox.ask("status", pairs=False)["counters"].get("audit_repairs", 0))


@pytest.mark.parametrize("hosts", ["A", "AB"])
def test_a_job_that_begins_again_at_once_is_answered_again(sandbox: Sandbox, hosts: str) -> None:
    kind = "exclusive" if len(hosts) > 1 else "shared"
    before = audit_repairs(sandbox)
    for number in range(20):
        document = job("again", 3, hosts, kind, begin_s=1_790_000_000 + number)
        for host in hosts:
            replace_all(sandbox, host, document, new=3)
        for host in hosts:
            await_answer(sandbox, host, document)
        for host in hosts:
            replace_all(sandbox, host)
    assert audit_repairs(sandbox) == before


@pytest.mark.parametrize("flood", ["bare nudges", "begin and end"])
def test_a_host_that_begins_and_ends_jobs_without_pause_delays_no_other(
    sandbox: Sandbox, flood: str
) -> None:
    ended, sent = threading.Event(), [0]

    def send() -> None:
        while not ended.is_set():
            jobs = [job(f"z{sent[0]}", number, "C") for number in range(1, 64)]
            declared = jobs if flood == "begin and end" and sent[0] % 2 else []
            replace_all(sandbox, "C", *declared, nudges=20)
            sent[0] += 1

    def reads() -> int:
        return int(sandbox.ask("status", pairs=False)["counters"]["declarations_read"])

    before, repairs, began_s = reads(), audit_repairs(sandbox), time.monotonic()
    with ThreadPoolExecutor(1) as threads:
        flooding = threads.submit(send)
        try:
            for number in range(10):
                document = job("one", 3, "AB", "exclusive", begin_s=1_790_000_000 + number)
                for host in "AB":
                    replace_all(sandbox, host, document, new=3)
                for host in "AB":
                    await_answer(sandbox, host, document)
                for host in "AB":
                    replace_all(sandbox, host)
            wait_until(
                lambda: any("C: it says too often" in line for line in _problems(sandbox)),
                lambda: str(_problems(sandbox)),
            )
        finally:
            ended.set()
        flooding.result()
    # Each host is read every 2 s, A and B after each of their nudges as well, and C at first a few
    # times at once, then once a second.
    most = 80 + 3 * (time.monotonic() - began_s)
    assert 0 < reads() - before < most, f"{20 * sent[0]} nudges were sent"
    assert audit_repairs(sandbox) == repairs
    # What C has said last is read soon.
    replace_all(sandbox, "C", job("last", 5, "C"))
    wait_until(lambda: state(sandbox, "last"), "what C declared last is not read")
    assert {each["id"] for each in sandbox.ask("job_list")["jobs"]} == {"last"}


def _problems(sandbox: Sandbox) -> list[str]:
    return problem_texts(sandbox.ask("status"))


def test_a_decision_that_fails_ends_nothing_and_stands_in_status() -> None:
    """Whatever a host declares: the paths that were given stay, and so does the controller."""
    fails = (
        "import ri2n_sdn.apps.jobs as jobs\n"
        "agree = jobs.agree\n"
        "def broken(declarations, *rest):\n"
        "    every = list(declarations)\n"
        "    assert all(each.host != 'C' for each in every), 'C is odd'\n"
        "    return agree(every, *rest)\n"
        "jobs.agree = broken"
    )
    with Sandbox({name: list(NETWORKS) for name in "ABC"}) as sandbox:
        controller = sandbox.start_controller(strategy="max_min", before=fails)
        sandbox.wait_settled()
        for host in "AB":
            declare(sandbox, host, job("one", 1, "AB", "exclusive"))
        await_installed(sandbox, "one")
        used = networks_used(sandbox, "A", flows(sandbox, "A", "B", 1))
        declare(sandbox, "C", job("odd", 1, "C"))
        wait_until(
            lambda: any("C is odd" in line for line in problem_texts(sandbox.ask("status"))),
            lambda: str(problem_texts(sandbox.ask("status"))),
        )
        for _ in range(25):  # more turns than a loop may fail in a row
            before = sandbox.ask("status")["counters"]["cluster_faults"]
            nudge(sandbox, "C")
            wait_until(
                lambda n=before: sandbox.ask("status")["counters"]["cluster_faults"] > n,  # type: ignore[misc]
                "the jobs app does nothing any more",
            )
        assert controller.poll() is None
        assert networks_used(sandbox, "A", flows(sandbox, "A", "B", 1)) == used
        withdraw(sandbox, "C", 1)
        await_problems(sandbox)


def test_an_order_reaches_its_hosts_and_ends(sandbox: Sandbox) -> None:
    wanted: dict[str, Any] = {"id": "o1", "user": "alice", "uid": 20001, "hosts": ["A", "B"]}
    wanted |= {"policy": "exclusive"}
    begun = sandbox.ask("job_begin", job=wanted)["job"]
    assert begun["state"] == "waiting"
    wait_until(lambda: "o1" in orders(sandbox, "A") and "o1" in orders(sandbox, "B"), "no order")
    assert sandbox.ask("job_begin", job=wanted)["again"]
    for key, value, fault in (
        ("hosts", ["A", "Z"], "no host Z"),
        ("policy", "any", "policy"),
        ("min_rate_bps", 10**13, "o2"),
        ("end_s", 1.0, "end_s"),
        ("colour", "red", "colour"),
    ):
        with pytest.raises(BadInput, match=fault):
            sandbox.ask("job_begin", job=wanted | {"id": "o2", key: value})
    for number, host in ((4, "A"), (9, "B")):
        document = orders(sandbox, host)["o1"]
        document.pop("order")
        declare(sandbox, host, document | {"class": number, "source": "order"})
    await_installed(sandbox, "o1")
    shown = sandbox.ask("job_show", id="o1")["job"]
    assert shown["classes"] == {"A": 4, "B": 9} and shown["routes"]
    used = networks_used(sandbox, "A", flows(sandbox, "A", "B", 4))
    assert len(used) == 1 and used == networks_used(sandbox, "B", flows(sandbox, "B", "A", 9))
    sandbox.ask("job_end", id="o1")
    wait_until(lambda: "o1" not in orders(sandbox, "A"), "the order stays")
    assert sandbox.ask("job_history")["jobs"][0]["why"].endswith("ended it")
