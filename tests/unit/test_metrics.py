# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: names, values, formats, bounds, and what a scrape of many hosts costs."""

from __future__ import annotations

import asyncio
import copy
import gzip
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.metrics import FAMILIES, MAX_NAMES, MAX_NICS, MAX_USERS
from ri2n_sdn.contract.sample import OLD_SAMPLE_S
from ri2n_sdn.contract.state import merge
from ri2n_sdn.web.auth import Auth, Denied
from ri2n_sdn.web.metrics import accepts, families, mount, page, table
from ri2n_sdn.web.shape import EMPTY, checked
from tests.unit.metrics_state import NOW_S, full_state, own
from tests.unit.web_app import serving
from tests.unit.web_state import FakeFeed, cluster_state

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
OPENMETRICS_HEADER = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}


def samples(state: Any, **changed: Any) -> dict[tuple[str, ...], float]:
    """The values by name and values of the labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in families(state, own(**changed))
        for sample in metric.samples
    }


@pytest.fixture(scope="module")
def state() -> Any:
    return full_state()


def test_every_family_has_a_value_in_a_state_with_everything(state: Documents) -> None:
    found = list(families(state, own()))
    assert [metric.name for metric in found] == [family.name for family in FAMILIES]
    assert [metric.name for metric in found if not metric.samples] == []


def test_values_are_those_of_the_state(state: dict[str, Any]) -> None:
    found = samples(state)
    expected = {
        ("ri2n_up",): 1,
        ("ri2n_state_age_seconds",): 0.25,
        ("ri2n_hosts",): 4,
        ("ri2n_host_connected", "h1"): 1,
        ("ri2n_host_connected", "h4"): 0,
        ("ri2n_nic_alive", "h1", "eth0"): 1,
        ("ri2n_nic_alive", "h1", "eth1"): 0,
        ("ri2n_nic_speed_bytes_per_second", "h1", "eth0"): 125e6,
        ("ri2n_nic_transmit_bytes_total", "h3", "eth1"): 3002,
        ("ri2n_nic_receive_bytes_total", "h3", "eth1"): 6002,
        ("ri2n_nic_weight_ratio", "h1", "eth0"): 0.75,
        ("ri2n_nic_outages_total", "h1", "eth1"): 1,
        ("ri2n_nic_outages_total", "h3", "eth1"): 0,
        ("ri2n_sample_age_seconds",): 0.5,
        ("ri2n_host_fair_ratio", "h1"): 0.4,
        ("ri2n_host_limited_bytes_per_second", "h1"): 1e8,
        ("ri2n_host_fair_bytes_per_second", "h1"): 1.5e9 / 8,
        ("ri2n_host_fair_ratio", "h2"): None,
        ("ri2n_host_active_pairs", "h2"): 2,
        ("ri2n_host_reweights_total", "h2"): 2,
        ("ri2n_host_slots_moved_total", "h2"): 32,
        ("ri2n_cycle_duration_seconds_bucket", "0.01"): 1,
        ("ri2n_cycle_duration_seconds_bucket", "+Inf"): 3,
        ("ri2n_cycle_duration_seconds_count",): 3,
        ("ri2n_openflow_messages_total", "received", "packet_in"): 900,
        ("ri2n_errors_total", "handler"): 2,
        ("ri2n_errors_total", "cluster"): 0,
        ("ri2n_handler_errors_total", "TrunkApp.error"): 2,
        ("ri2n_loop_errors_total", "telemetry"): 1,
        ("ri2n_events_total", "flow_mods"): 12,
        ("ri2n_cable_alive", "leaf2/17-up1/2"): 0,
        ("ri2n_helper_sent_frames_total", "h2"): 1500,
        ("ri2n_helper_usable_links", "h2"): 2,
        ("ri2n_fast_up", "h3"): 1,
        ("ri2n_fast_peers", "h3", "carried"): 2,
        ("ri2n_fast_peers", "h3", "undecided"): 1,
        ("ri2n_fast_peers", "h3", "striped"): 0,
        ("ri2n_fast_dropped_frames_total", "h3"): 5,
        ("ri2n_jobs", "installed"): 1,
        ("ri2n_jobs", "refused"): 0,
        ("ri2n_user_jobs", "alice"): 1,
        ("ri2n_jobs_failing",): 1,
        ("ri2n_reservations", "later"): 1,
        ("ri2n_build_info", "web", "0.1.0"): 1,
        ("ri2n_certificate_end_timestamp_seconds", "web"): NOW_S + 86400,
        ("ri2n_certificate_end_timestamp_seconds", "controller"): NOW_S + 2 * 86400,
        ("ri2n_host_certificate_end_timestamp_seconds", "h1"): NOW_S + 3 * 86400,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert found["ri2n_nic_outage_seconds_total", "h2", "eth1"] == pytest.approx(7.5, abs=0.5)
    assert found["ri2n_nic_out_since_timestamp_seconds", "h1", "eth1"] > 1.5e9
    assert not [key for key in found if key[:2] == ("ri2n_nic_up", "h4")], "it is not known"
    assert ("ri2n_helper_up", "h1") not in found, "it has no helper"
    assert not [key for key in found if key[0].startswith("ri2n_fast_") and key[1] != "h3"]
    assert ("ri2n_events_total", "cycles") not in found, "the histogram has it"


@pytest.mark.parametrize(
    ("word", "value"),
    [("in_force", 1), ("silent", 0), ("refused", 0), ("no_device", 0), ("off", None)],
)
def test_a_fast_path_is_up_while_it_is_in_force_and_reported(
    state: dict[str, Any], word: str, value: float | None
) -> None:
    host = state["hosts"]["h3"]
    changed = {**host, "fast": {**host["fast"], "state": word}}
    found = samples({**state, "hosts": {**state["hosts"], "h3": changed}})
    assert found.get(("ri2n_fast_up", "h3")) == value


def test_without_a_controller_there_are_no_old_values(state: dict[str, Any]) -> None:
    found = samples(state, connected=False)
    assert found["ri2n_up",] == 0 and found["ri2n_state_age_seconds",] == 0.25
    allowed = {family.full_name for family in FAMILIES if family.web}
    assert {key[0] for key in found} == allowed
    assert ("ri2n_build_info", "controller", "0.1.0") not in found


def test_what_rounds_read_is_absent_when_there_are_no_rounds(state: dict[str, Any]) -> None:
    """The controller answers, and probes go on; rates and counters would stay as they were."""
    sampled = {family.full_name for family in FAMILIES if family.sampled}
    assert {"ri2n_nic_transmit_bytes_total", "ri2n_host_fair_ratio"} < sampled
    limit_s = OLD_SAMPLE_S + 3 * state["controller"]["hbspan_s"]
    late = samples(state, now_s=NOW_S - 0.5 + limit_s)
    assert sampled <= {key[0] for key in late} and late["ri2n_sample_age_seconds",] == limit_s
    old = samples(state, now_s=NOW_S + limit_s)
    assert not sampled & {key[0] for key in old}
    assert {"ri2n_cycle_duration_seconds_count", "ri2n_nic_alive"} < {key[0] for key in old}
    assert old["ri2n_sample_age_seconds",] == limit_s + 0.5
    gone = samples(state, connected=False, now_s=NOW_S + 3600)
    assert gone["ri2n_sample_age_seconds",] == 3600.5, "it grows without a controller, too"


def test_a_controller_that_stands_by_has_no_values_of_before(state: dict[str, Any]) -> None:
    waits = {**state, "controller": {**state["controller"], "in_charge": False}}
    found = {key[0] for key in samples(waits)}
    assert found == {key[0] for key in samples(state) if not key[0].startswith(_MEASURED)}
    assert {"ri2n_controller_in_charge", "ri2n_host_connected", "ri2n_problems"} < found


def test_names_follow_the_conventions() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert re.fullmatch(r"ri2n(_[a-z0-9]+)+", family.name), family
        assert not family.name.endswith(("_total", "_info", "_count", "_sum", "_bucket"))
        words = set(family.name.split("_"))
        assert not words & {"bps", "bits", "ms", "milliseconds", "kb", "percent"}, family
        assert family.kind != "histogram" or "seconds" in words
        assert family.about.endswith(".") and family.bound
        assert not set(family.labels) & {"le", "job", "instance", "pair", "id"}, family


@pytest.mark.parametrize("openmetrics", [False, True])
def test_both_formats_can_be_read_back(state: dict[str, Any], openmetrics: bool) -> None:
    hostile = full_state()
    hostile["hosts"]['x"\\\n'] = hostile["hosts"].pop("h3")
    text = page(families(hostile, own()), openmetrics).decode()
    reader: Any = read_openmetrics if openmetrics else read_text

    def found(metrics: Iterable[Metric]) -> dict[Any, float]:
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for metric in metrics
            for sample in metric.samples
        }

    read = found(reader(text))
    assert read == found(families(hostile, own()))
    assert ("ri2n_host_connected", frozenset({("host", 'x"\\\n')})) in read
    assert text.endswith("# EOF\n") == openmetrics


_MEASURED = (
    *("ri2n_nic_", "ri2n_cable_", "ri2n_network_", "ri2n_helper_", "ri2n_jobs", "ri2n_user_jobs"),
    "ri2n_fast_",
    *("ri2n_hosts_in_jobs", "ri2n_reservations", "ri2n_rights", "ri2n_policies"),
    *("ri2n_host_active_pairs", "ri2n_host_reweights", "ri2n_host_slots_moved"),
    *("ri2n_host_fair_", "ri2n_host_limited_"),
    "ri2n_host_certificate_end_timestamp_seconds",
    *("ri2n_controller_settled", "ri2n_active_pairs"),
)
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    1e308,
    "x",
    "\ud800\0\r\u2028",
    [],
    [None],
    {},
    {"x": {}},
)


def leaves(part: object, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a document."""
    for key, value in part.items() if isinstance(part, dict) else ():
        yield (*place, key)
        yield from leaves(value, (*place, key))


def test_no_strange_value_of_a_controller_costs_the_whole_page() -> None:
    """What the web process takes from a line, each value in turn in another form."""
    whole = full_state()
    whole = {part: entries for part, entries in whole.items() if part != "events"}
    places = [place for place in leaves(whole) if len(place) > 1]
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    for place in draw.sample(places, 60):
        broken = copy.deepcopy(whole)
        part: Any = broken
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = strange = draw.choice(STRANGE)
        taken, _ = checked(broken)
        try:
            state = cast(Documents, merge(EMPTY, taken))
            body = page(families(state, own()), draw.choice((False, True)))
        except Exception as error:
            raise AssertionError(f"{place} as {strange!r}") from error
        assert b"ri2n_up 1.0" in body


def test_a_state_that_lacks_parts_still_gives_the_others(state: dict[str, Any]) -> None:
    """Those of an older controller, or of entries that were dropped as malformed."""
    later = ("bytes", "activity", "outages", "lengths", "openflow", "cables", "helpers")
    old = {part: entries for part, entries in state.items() if part not in later}
    assert samples(old)["ri2n_nic_outages_total", "h1", "eth1"] == 0
    assert samples({**old, "controller": {}})["ri2n_hosts",] == 4


def test_a_nic_that_was_taken_out_while_it_was_out_is_not_out_for_ever() -> None:
    removed = full_state()
    assert ("ri2n_nic_out_since_timestamp_seconds", "h1", "eth1") in samples(removed)
    del removed["hosts"]["h1"]["nics"]["eth1"]
    assert ("ri2n_nic_out_since_timestamp_seconds", "h1", "eth1") not in samples(removed)


def test_counters_only_grow_while_a_host_is_away_and_back(state: dict[str, Any]) -> None:
    """A value that falls to 0 and comes back would count as all of it once more."""
    away = {**state, "bytes": {}, "hosts": {**state["hosts"]}}
    assert not [key for key in samples(away) if key[0] == "ri2n_nic_transmit_bytes_total"]


# ---- bounds


def test_series_grow_with_hosts_and_nics_alone() -> None:
    small, large = (
        Counter(
            metric.name for metric in families(full_state(hosts), own()) for _ in metric.samples
        )
        for hosts in (20, 40)
    )
    for family in FAMILIES:
        grown = large[family.name] - small[family.name]
        if "host" not in family.labels:
            assert grown == 0, family
        else:
            assert grown <= (40 if "nic" in family.labels else 20), family


def test_a_host_that_says_it_has_a_thousand_nics_is_bounded() -> None:
    """The highest port of a NIC is 1023, and its host chooses it."""
    found = Counter(
        sample.labels["host"]
        for metric in families(full_state(3, 1023), own())
        for sample in metric.samples
        if "nic" in sample.labels
    )
    assert all(n_series <= 10 * MAX_NICS for n_series in found.values()) and len(found) == 3


def test_names_and_users_are_bounded(state: dict[str, Any]) -> None:
    job = next(iter(state["jobs"].values()))
    many = {
        **state,
        "counters": {f"dropped_{number}": 1 for number in range(5000)},
        "jobs": {f"j{number}": {**job, "user": f"u{number}"} for number in range(3000)},
    }
    found = Counter(key[0] for key in samples(many))
    assert found["ri2n_events_total"] == MAX_NAMES + 1
    assert found["ri2n_user_jobs"] == MAX_USERS + 1
    assert samples(many)["ri2n_user_jobs", "(others)"] == 3000 - MAX_USERS


def test_a_scrape_of_a_thousand_hosts_is_bounded() -> None:
    """Its cost is counted in function calls, on which other processes have no influence."""
    large = full_state(1000)
    counted = 0

    def count_call(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        body = page(families(large, own()), openmetrics=False)
    finally:
        sys.setprofile(None)
    n_series = sum(not line.startswith(b"#") for line in body.splitlines())
    print(f"{len(body)} bytes, {n_series} series, {counted} calls")
    assert 15_000 < n_series < 30_000 and len(body) < 3_000_000
    assert counted < 60 * n_series


# ---- over HTTP


class FakeAuth:
    """Knows one token."""

    def who_of_bearer(self, header: str | None, address: str) -> None:
        if header != "Bearer good":
            raise Denied(401, "a token is needed")


def served(state: Mapping[str, Any], headers: list[Mapping[str, str]]) -> list[httpx.Response]:
    """The answers to requests that are sent at once."""
    app = FastAPI()
    feed = SimpleNamespace(state=state, connected=True, since_s=NOW_S, heard_s=NOW_S, counters={})
    mount(app, cast(Any, feed), cast(Auth, FakeAuth()))

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await asyncio.gather(*(client.get("/metrics", headers=each) for each in headers))

    return asyncio.run(ask())


def test_the_format_is_the_one_that_was_asked_for(state: dict[str, Any]) -> None:
    good = {"Authorization": "Bearer good"}
    plain, opened, none = served(state, [good, good | OPENMETRICS_HEADER, {}])
    assert plain.status_code == opened.status_code == 200
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert opened.headers["content-type"].startswith("application/openmetrics-text")
    reader: Any = read_openmetrics
    assert any(metric.name == "ri2n_up" for metric in reader(opened.text))
    assert "process_resident_memory_bytes" in plain.text, "the web process, too"
    assert (none.status_code, none.headers["www-authenticate"]) == (401, "Bearer")


def test_scrapes_at_the_same_time_are_made_once(
    state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(*arguments: Any) -> bytes:
        made.append(arguments)
        return page(*arguments)

    monkeypatch.setattr("ri2n_sdn.web.metrics.page", counted)
    headers = {"Authorization": "Bearer good"}
    answers = served(state, [headers] * 8)
    assert {answer.status_code for answer in answers} == {200} and len(made) == 1


def test_a_scrape_asks_the_controller_nothing() -> None:
    feed = FakeFeed(cluster_state(1000))

    async def scrape() -> str:
        async with serving(feed) as client:
            answers = [await client.get("/metrics") for _ in range(3)]
            return answers[-1].text

    before = feed.state
    text = asyncio.run(scrape())
    assert 'ri2n_host_connected{host="h1000"} 1.0' in text
    assert feed.asked == [] and feed.state is before and feed.seq == 1


def test_a_page_is_compressed_for_those_who_read_that(state: dict[str, Any]) -> None:
    headers = {"Authorization": "Bearer good", "Accept-Encoding": "gzip"}
    (answer,) = served(state, [headers])
    assert answer.headers["content-encoding"] == "gzip" and "ri2n_up 1.0" in answer.text
    (answer,) = served(state, [headers | {"Accept-Encoding": "gzip;q=0"}])
    assert "content-encoding" not in answer.headers and "ri2n_up 1.0" in answer.text
    assert gzip.decompress(gzip.compress(answer.content)) == answer.content


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, False),
        ("", False),
        ("*/*", False),
        ("text/plain, application/openmetrics-text; version=nonsense; q=0.3", True),
        ("application/openmetrics-text;q=0", False),
        ("APPLICATION/OPENMETRICS-TEXT", True),
        (";;;,,q=;application/openmetrics-text", False),
    ],
)
def test_what_a_header_accepts(header: str | None, expected: bool) -> None:
    assert accepts(header, "application/openmetrics-text") is expected


# ---- the documentation


def test_the_documentation_has_the_table_of_the_code() -> None:
    assert table() in DOCS.read_text(encoding="utf-8"), (
        "write it anew: python -c 'from ri2n_sdn.web.metrics import table; print(table())'"
    )
