"""A container behind a host, with a MAC address of its own that only the host's `host-up` was told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ri2n_sdn.lab import Lab

from .conftest import PATIENCE_S, controlled

WaitUntil = Callable[..., None]
MAC = "0e:00:00:00:77:01"
HOST = "B"


@pytest.fixture
def lab() -> Iterator[Lab]:
    with controlled("one-switch") as lab:
        yield lab


def test_an_address_that_host_up_alone_was_told_is_reached_by_all_hosts(lab: Lab, wait_until: WaitUntil) -> None:
    box = lab.popen(HOST, ["unshare", "--net", "sleep", "3600"])
    inside = ["nsenter", f"--net=/proc/{box.pid}/ns/net"]
    own = lab.exec(HOST, ["readlink", "/proc/self/ns/net"]).stdout
    wait_until(
        lambda: lab.exec(HOST, ["readlink", f"/proc/{box.pid}/ns/net"], check=False).stdout not in ("", own),
        "the container has no network of its own",
    )
    device = ["ip", "link", "add", "box0", "link", "br-ri2n", "address", MAC]
    lab.exec(HOST, [*device, "netns", str(box.pid), "type", "macvlan", "mode", "bridge"])
    address = lab.address(HOST).rpartition(".")[0] + ".77"
    lab.exec(HOST, [*inside, "ip", "addr", "add", f"{address}/24", "dev", "box0"])
    lab.exec(HOST, [*inside, "ip", "link", "set", "box0", "up"])

    def silent() -> list[str]:
        """Hosts that the container does not answer; the one that it is behind cannot talk to its own macvlan."""
        ping = ["ping", "-q", "-c1", "-W1", address]
        others = [host for host in lab.hosts if host != HOST]
        return [host for host in others if lab.exec(host, ping, check=False).returncode]

    assert silent() == [host for host in lab.hosts if host != HOST], "nobody was told of it"
    lab.host_script(HOST, "host-up", *lab.host_up_arguments(HOST), "--extra-mac", MAC)
    wait_until(lambda: not silent(), lambda: f"not reached by {silent()}", PATIENCE_S)
    lab.host_script(HOST, "host-up", *lab.host_up_arguments(HOST))
    wait_until(
        lambda: len(silent()) == len(lab.hosts) - 1,
        "it is still let in, though host-up was told that it went",
        PATIENCE_S,
    )
