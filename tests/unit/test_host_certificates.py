# SPDX-License-Identifier: Apache-2.0
"""Certificates of hosts: when they end, and what hostile ones cost."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest

from ri2n_sdn.apps import openflow
from ri2n_sdn.apps import problems as problems_module
from ri2n_sdn.apps.channel import Close
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.connection import ConnectionApp
from ri2n_sdn.apps.counts import Counts
from ri2n_sdn.apps.problems import problems_of
from ri2n_sdn.apps.tokens import Tokens
from ri2n_sdn.apps.watching import Collector
from ri2n_sdn.certificates import certificate_times, peer_end_s
from ri2n_sdn.web.shape import checked
from tests.unit.app_turns import Clock, replace_time
from tests.unit.commands import REPOSITORY
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.test_identity import described
from tests.waiting import LONG_S

DAY_S = 86400.0
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(*argv: object) -> None:
    subprocess.run(["openssl", *map(str, argv)], check=True, capture_output=True, timeout=LONG_S)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, `ca`, and a key for a host."""
    folder = tmp_path_factory.mktemp("pem")
    for name in ("ca", "host"):
        openssl("req", "-x509", *KEY, "-days", "2", "-subj", f"/CN={name}",
                "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")  # fmt: skip
    return folder


def signed(pem: Path, days: int, subject: str = "/CN=A", names: str = "") -> Path:
    """A certificate of the authority for the key of `host`."""
    made, asked, more = pem / "host.pem", pem / "host.csr", pem / "more"
    more.write_text(f"subjectAltName={names}\n" if names else "")
    openssl("req", "-new", "-utf8", "-key", pem / "host.key", "-subj", subject, "-out", asked)
    openssl("x509", "-req", "-days", days, "-in", asked, "-CA", pem / "ca.pem",
            "-CAkey", pem / "ca.key", "-CAcreateserial", "-extfile", more,
            "-out", made)  # fmt: skip
    return made


@contextmanager
def connection(pem: Path) -> Iterator[ssl.SSLSocket]:
    """The controller's end of a connection of the host. Raises ssl.SSLError when it is refused."""
    ours = openflow.tls_context(pem / "ca.key", pem / "ca.pem", pem / "ca.pem")
    its = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    its.check_hostname, its.verify_mode = False, ssl.CERT_NONE
    its.load_cert_chain(pem / "host.pem", pem / "host.key")
    here, there = socket.socketpair()
    with closing(here), closing(there), ThreadPoolExecutor(1) as pool:
        for each in (here, there):
            each.settimeout(LONG_S)
        client = pool.submit(its.wrap_socket, there)
        try:
            with ours.wrap_socket(here, server_side=True) as made:
                yield made
        finally:
            with suppress(OSError):  # it may have heard of the refusal
                client.result().close()


@pytest.fixture
def drops(monkeypatch: pytest.MonkeyPatch) -> Counts:
    made = Counts()
    monkeypatch.setattr(openflow, "handler_drops", made)
    return made


@pytest.mark.parametrize(
    ("subject", "names", "expected"),
    [
        ("/CN=A", "", {"A"}),
        ("/CN=A id:1234", "", {"A"}),
        ("/CN=\x1b[2J\u202eA\n{}", "", {"\x1b[2J\u202eA\n{}"}),
        ("/O=nobody", "", set()),
        ("/CN=A", ",".join(f"DNS:h{number}.example" for number in range(2000)), None),
    ],
    ids=["plain", "ovs-pki", "odd", "nobody", "many"],
)
def test_the_end_of_a_real_certificate_is_read_whatever_else_is_in_it(
    subject: str, names: str, expected: set[str] | None, pem: Path, drops: Counts
) -> None:
    file = signed(pem, 2_900_000, subject, names)  # it ends in about 8,000 years
    with connection(pem) as made:
        certificate = openflow._certificate_of(made)
    ends_s = openflow._certificate_ends_s(certificate)
    assert ends_s == certificate_times(file)[1].timestamp() > 2e11
    found = openflow._names(certificate)
    assert found == expected if expected is not None else len(found) == 2000
    assert drops.described() == {}


def test_a_certificate_that_has_ended_is_refused(pem: Path) -> None:
    signed(pem, -1)
    with pytest.raises(ssl.SSLCertVerificationError, match="has expired"), connection(pem):
        pass


@pytest.mark.parametrize(
    "certificate",
    [
        {},
        {"notAfter": None},
        {"notAfter": 7},
        {"notAfter": ""},
        {"notAfter": "Bad time value"},
        {"notAfter": "Foo 30 00:00:00 2030 GMT"},
        {"notAfter": "x" * 100_000},
    ],
)
def test_an_end_that_makes_no_sense_is_none_and_counted(
    certificate: Mapping[str, Any], drops: Counts
) -> None:
    assert openflow._certificate_ends_s(certificate) is None
    assert drops.described() == {"certificates_unreadable": 1}


def test_ends_at_the_edges_of_time() -> None:
    assert peer_end_s({"notAfter": "Jan  1 00:00:00 1950 GMT"}) == 0.0
    assert peer_end_s({"notAfter": "Jan  1 00:00:07 1970 GMT"}) == 7.0
    assert peer_end_s({"notAfter": "Dec 31 23:59:59 9999 GMT"}) == 253402300799.0


@pytest.mark.parametrize("error", [ValueError("x"), ssl.SSLError(1, "x")])
def test_a_certificate_that_makes_no_sense_ends_its_connection_alone(
    error: Exception, drops: Counts
) -> None:
    class Odd:
        def getpeercert(self) -> dict[str, Any]:
            raise error

    with pytest.raises(openflow._Malformed, match="its certificate cannot be read"):
        openflow._certificate_of(cast(ssl.SSLSocket, Odd()))
    assert drops.described() == {"certificates_unreadable": 1}


# ---- What operators see


def doctor(folder: Path, certificate: Path, authority: Path) -> list[tuple[str, str]]:
    """(verdict, text) of what host-doctor finds out about these files."""
    (folder / "ssl").write_text(
        f"Private key: /k\nCertificate: {certificate}\nCA Certificate: {authority}\nBootstrap: no\n"
    )
    scripts = REPOSITORY / "ovs-host-scripts"
    text = (
        f"set -euo pipefail; source {scripts}/common.sh; source {scripts}/examine.sh\n"
        f"vsctl() {{ [[ $* == get-ssl ]] && cat {folder}/ssl; }}\nlook_at_certificates\n"
        'for at in "${!SEEN[@]}"; do echo "${VERDICTS[at]} ${CHECKS[at]} ${SEEN[at]}"; done'
    )
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    rows = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert {check for _, check, _ in rows} == {"TLS"}
    return [(verdict, seen) for verdict, _, seen in rows]


@pytest.mark.parametrize(
    ("days", "verdict", "said"),
    [(300, "ok", " until "), (3, "warning", " ends on "), (-1, "bad", " has ended on ")],
)
def test_host_doctor_looks_at_the_files(
    days: int, verdict: str, said: str, pem: Path, tmp_path: Path
) -> None:
    file = signed(pem, days)
    day = f"{certificate_times(file)[1]:%Y-%m-%d}"
    found, text = doctor(tmp_path, file, file)[0]
    assert (found, text.partition(", ")[0]) == (verdict, f"{file}{said}{day}")


def test_host_doctor_names_a_file_that_is_none(pem: Path, tmp_path: Path) -> None:
    file = signed(pem, 300)
    odd = tmp_path / "odd.pem"
    odd.write_text("nonsense")
    none = tmp_path / "none.pem"
    assert doctor(tmp_path, odd, none) == [
        ("warning", f"{odd} has no certificate that can be read"),
        ("warning", f"{none} has no certificate that can be read"),
    ]
    assert doctor(tmp_path, file, odd) == [
        ("warning", f"{odd} has no certificate that can be read")
    ]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return replace_time(monkeypatch, problems_module)


def two_hosts() -> Cluster:
    return cluster_of({"A": FakeChannel(), "B": FakeChannel()})


def day_of(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, timezone.utc).strftime("%Y-%m-%d")


def test_the_certificate_of_the_last_connection_counts() -> None:
    app = ConnectionApp()
    app.cluster = two_hosts()
    for ends_s in (5e9, None, 6e9):
        channel = described(
            app, b"D\0", "06:00:00:00:99:00", {1: "04:00:00:00:99:01"}, ends_s=ends_s
        )
        assert app.cluster.members["D"].certificate_ends_s == ends_s
        state = Collector(app.cluster, Tokens(None)).collect()
        assert state["hosts"]["D"]["certificate_ends_s"] == ends_s
        assert checked(state) == (state, 0)
        channel.close(Close.ENDED)
        app.cluster.members["D"].channel = None


def test_status_tells_two_weeks_before(clock: Clock) -> None:
    cluster = two_hosts()
    ends_s = clock.time() + 14 * DAY_S + 60
    cluster.members["A"].certificate_ends_s = ends_s
    assert problems_of(cluster) == []
    clock.now_s += 61
    (problem,) = problems_of(cluster)
    assert (problem.id, problem.severity) == ("certificate_ends:A", "warning")
    assert problem.args == {"day": day_of(ends_s)}
    clock.now_s += 14 * DAY_S
    (problem,) = problems_of(cluster)
    assert (problem.id, problem.severity) == ("certificate_ended:A", "warning")
    assert problem.args == {"day": day_of(ends_s)}
    cluster.members["A"].channel = None
    found = {each.id: each.severity for each in problems_of(cluster)}
    assert found == {"certificate_ended_away:A": "bad", "host_away:A": "bad"}
    cluster.members["A"].certificate_ends_s = clock.time() + 365 * DAY_S
    assert [each.id for each in problems_of(cluster)] == ["host_away:A"]


def test_when_all_certificates_end_at_once_status_stays_short(clock: Clock) -> None:
    cluster = two_hosts()
    for number in range(60):
        name = f"h{number:04d}"
        cluster.members[name] = member = cluster.members["A"].__class__(
            name, number, f"06:00:00:00:01:{number:02x}", "3.1.0", {}
        )
        member.channel = cluster.members["A"].channel
        member.certificate_ends_s = clock.time() + number
    found = [each for each in problems_of(cluster) if "certificate" in each.code]
    assert len(found) == 21 and found[0].id == "certificate_ended:h0000"
    assert (found[-1].code, found[-1].args) == ("more_certificates_end", {"count": 40})


def test_a_controller_that_says_nothing_of_certificates_is_understood() -> None:
    state = Collector(two_hosts(), Tokens(None)).collect()
    for host in state["hosts"].values():
        del host["certificate_ends_s"]
    assert checked(state) == (state, 0)
    strange: tuple[object, ...] = ("soon", -1, 1e300, True, [])
    for odd in strange:
        state["hosts"]["A"]["certificate_ends_s"] = odd
        good, dropped = checked(state)
        assert dropped == 1 and set(good["hosts"]) == {"B"}
