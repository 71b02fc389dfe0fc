# SPDX-License-Identifier: Apache-2.0
"""What the pages of traffic, events and settings show, from states of any size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.apps.parameters import PARAMETERS, list_parameters
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.fair import fair_entry
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.contract.units import (
    duration_text,
    number_text,
    page_rate,
    page_time,
    percent_text,
)
from ri2n_sdn.errors import BadInput
from ri2n_sdn.web.gui.charts import chart_summary, rate_chart, share_chart, thinned
from ri2n_sdn.web.gui.event_views import cures, event_row, events_found, problem_rows
from ri2n_sdn.web.gui.fair_views import (
    MAX_LINES,
    fair_chart,
    lines_of,
    marks_of,
    worst_client,
)
from ri2n_sdn.web.gui.hosts_table import cells, details
from ri2n_sdn.web.gui.listing import Question, Steady, page_of
from ri2n_sdn.web.gui.setting_views import (
    STRATEGIES,
    audit_entry_rows,
    audit_rows,
    consequences,
    fact_rows,
    parameter_rows,
    parameter_value,
    token_request,
    token_rows,
)
from ri2n_sdn.web.gui.traffic_views import (
    ALL,
    MAX_POINTS,
    PairSamples,
    host_names,
    host_row,
    newest_rates,
    pair_request,
    pair_rows,
    path_rows,
)
from ri2n_sdn.web.gui.words import (
    rate_input,
    rate_of_field,
    sentence,
    shortened,
    time_of_field,
)
from ri2n_sdn.web.shape import EMPTY
from ri2n_sdn.web.who import Who
from ri2n_sdn.weights.strategies import STRATEGIES as OF_THE_CONTROLLER
from tests.unit.fake_hosts import cluster_of
from tests.unit.refused import refused
from tests.unit.web_state import NOW_S, FakeFeed, cluster_state, event, state_of

VIEWER, ADMIN = Who("anonymous", "viewer"), Who("carol", "admin")


def host_rows(state: Documents, sort: str = "worst", search: str = "") -> list[dict[str, Any]]:
    return [host_row(state, name) for name in host_names(state, sort, search)]


def event_rows(state: Any, **asked: Any) -> list[dict[str, Any]]:
    whole = state_of(**state)
    return [event_row(each, whole) for each in events_found(whole, **asked)]


# ---- Words


@pytest.mark.parametrize(
    ("rate_bps", "text"),
    [
        (None, "-"),
        (0, "0 bit/s"),
        (999.4, "999 bit/s"),
        (999.9, "1.00 kbit/s"),
        (94_123_456, "94.1 Mbit/s"),
        (999_960_000, "1.00 Gbit/s"),
        (40e9, "40.0 Gbit/s"),
        (123e12, "123 Tbit/s"),
    ],
)
def test_a_rate_has_three_digits(rate_bps: float | None, text: str) -> None:
    assert page_rate(rate_bps) == text


@given(st.integers(1, 10**12))
def test_a_rate_is_read_as_it_was_written(rate_bps: int) -> None:
    assert rate_of_field(rate_input(rate_bps), "Rate") == rate_bps


@given(st.text(max_size=20))
def test_any_text_is_a_rate_and_a_time_or_is_refused_in_one_line(text: str) -> None:
    for parse in (
        lambda: rate_of_field(text, "Rate"),
        lambda: time_of_field(text, NOW_S, "Ends"),
        lambda: time_of_field(f"+{text}", NOW_S, "Ends"),
    ):
        try:
            assert parse() is None or parse() >= 0  # type: ignore[operator]
        except BadInput as error:
            assert str(error).isprintable()


def test_times_and_durations() -> None:
    assert page_time(0) == "1970-01-01 00:00:00 UTC" and page_time(None, "never") == "never"
    assert page_time(1e300).startswith("9999-12-31")
    assert time_of_field("1970-01-01T01:00", 5.0, "Ends") == 3600
    assert time_of_field("1970-01-01T01:00+01:00", 5.0, "Ends") == 0
    assert time_of_field("1970-01-02T00:00Z", 5.0, "Ends") == 86400
    assert [time_of_field(text, 5.0, "Ends") for text in ("+2h", "3 d", "")] == [7205, 259205, None]
    assert [duration_text(value) for value in (-1, 40, 65, 7500, 86400, 90061)] == [
        *("0 s", "40 s", "1 min 5 s", "2 h 5 min", "1 d", "1 d 1 h")
    ]
    assert [number_text(value) for value in (0.04, 64000.0, 1e12, 400, "max_min")] == [
        *("0.04", "64,000", "1,000,000,000,000", "400", "max_min")
    ]
    assert percent_text(0.25) == "25.0 %" and percent_text(None) == "-"


def test_a_long_name_loses_its_middle() -> None:
    names = [f"a-long-name-of-rack-1-node-{number:02d}" for number in range(20)]
    shown = [shortened(name, 18) for name in names]
    assert shown[7] == "a-long-na…-node-07" and len({*shown}) == 20
    assert shortened("h0001", 5) == "h0001" and shortened("abcdef", 2) == "a…"


# ---- Traffic


def busy_state() -> Any:
    """Three senders and an idle host that is away; no link limits h0003."""
    state = cluster_state(hosts=4, nics=1, away=("h0004",))
    state["controller"]["sampled_s"] = NOW_S
    state["rates"] = {
        "h0001": {"eth0": [90e6, 1e6]},
        "h0002": {"eth0": [30e6, 0.0]},
        "h0003": {"eth0": [5e6, 20e6]},
    }
    state["fair"] = {
        "h0001": fair_entry([("h0003", 60e6, 50e6), ("h0002", 30e6, 50e6)]),
        "h0002": fair_entry([("h0003", 30e6, 40e6)]),
    }
    return state


def test_the_worst_client_is_who_gets_the_smallest_part_of_what_is_fair() -> None:
    state = busy_state()
    assert [row["id"] for row in host_rows(state, "worst")] == ["h0001", "h0002", "h0003", "h0004"]
    assert [row["id"] for row in host_rows(state, "rate")] == ["h0001", "h0002", "h0003", "h0004"]
    state["fair"]["h0002"] = fair_entry([("h0003", 4e6, 40e6)])
    state["rates"]["h0003"] = {"eth0": [0.0, 950e6]}
    assert [row["id"] for row in host_rows(state, "worst")] == ["h0002", "h0001", "h0003", "h0004"]
    assert host_rows(state, "rate")[0]["id"] == "h0003"
    assert [row["id"] for row in host_rows(state, "name", "H000")] == sorted(state["hosts"])
    rows = {row["id"]: row for row in host_rows(state)}
    assert [rows[name]["part"] for name in sorted(rows)] == ["90.0 %", "10.0 %", "-", "-"]
    assert (rows["h0003"]["load"], rows["h0004"]["nics"]) == ("95.0 %", "away")


def test_one_sentence_on_the_worst_client_never_names_who_receives_as_the_best() -> None:
    state = busy_state()
    assert worst_client(state) == (
        "Worst of 3 pairs that a link limits: h0001 to h0002 gets 60.0 % of what is fair, "
        "30.0 Mbit/s of 50.0 Mbit/s."
    )
    assert "limited: h0001 to h0002 got 60.0 %" in worst_client(state, old=True)
    state["fair"] = {}
    assert worst_client(state) == "No link limits anybody."
    state["rates"] = {}
    assert worst_client(state) == "No host sends anything."
    del state["controller"]["sampled_s"]
    assert worst_client(state) == worst_client(EMPTY) == "It is not known yet what is fair."


def test_a_chart_has_lines_for_all_of_few_hosts_and_of_many_for_those_that_get_least() -> None:
    assert lines_of(busy_state()) == ["h0001", "h0002", "h0003", "h0004"]
    state = cluster_state(hosts=40, nics=1)
    state["fair"] = {
        f"h{number:04d}": fair_entry([("h0001", number * 1e6, 50e6)]) for number in range(11, 31)
    }
    first = lines_of(state)
    assert first == [f"h{number:04d}" for number in range(11, 11 + MAX_LINES)]
    state["fair"]["h0030"] = fair_entry([("h0001", 1e6, 50e6)])
    assert lines_of(state, first) == first, "lines stay until others are asked for"
    assert "h0030" in lines_of(state)
    del state["hosts"]["h0011"]
    assert lines_of(state, first) == sorted([*first[1:], "h0030"])


def test_marks_tell_when_strategy_links_and_jobs_changed() -> None:
    nic = {"host": "B", "nic": "eth0"}
    events = [
        event(1, "parameter_set_by", parameter="strategy", value="round_robin", by="ann"),
        event(2, "parameter_set", parameter="strategy", value="max_min"),
        event(3, "parameter_set", parameter="hysteresis", value="0.1"),
        event(4, "nic_down", nic),
        event(5, "nic_up", nic),
        event(6, "job_begun", {"job": "j1"}, user="u", hosts=["A"], policy="shared"),
        event(7, "job_ended", {"job": "j1"}, user="u", why="done"),
        {"seq": 8, "time_s": NOW_S + 80, "code": "nic_down", "text": "of another version"},
    ]
    marks = marks_of(events, NOW_S + 20)
    assert [mark.text for mark in marks] == [
        *("strategy max_min", "B:eth0 dead", "B:eth0 works", "job j1 begins", "job j1 ends")
    ]
    assert [mark.bad for mark in marks] == [False, True, False, False, False]
    sent: dict[str, list[float | None]] = {"A": [1e6, 2e6], "B": [None, 3e6]}
    chart = fair_chart([NOW_S + 20, NOW_S + 60], sent, {"B": [5e6, 5e6]}, marks)
    assert [series["name"] for series in chart["series"]] == ["A", "B", "B, fair"]
    solid, dashed = (series["lineStyle"] for series in chart["series"][1:])
    assert (solid["type"], dashed["type"]) == ("solid", "dashed")
    assert solid["color"] == dashed["color"] != chart["series"][0]["lineStyle"]["color"]
    drawn = chart["series"][0]["markLine"]["data"]
    assert [each["xAxis"] for each in drawn] == [round(1000 * mark.time_s) for mark in marks]
    assert chart["legend"]["data"] == ["A", "B"]


def test_what_to_do_is_that_of_the_worst_problem_of_a_host_and_of_a_nic_first() -> None:
    state = cluster_state(hosts=3, dead=(("h0002", "eth0"), ("h0002", "eth1")), away=("h0003",))
    of_nic, other, of_host = state["problems"].values()
    of_nic["advice"], of_nic["rank"], other["rank"] = "look at it", 5, 6
    whole = Problem("host_away", {"host": "h0002"})
    state["problems"][whole.id] = {**whole.document(), "rank": 0}
    assert cures(state) == {"h0002": "Look at it.", "h0003": sentence(of_host["advice"])}
    state["problems"] = {whole.id: state["problems"][whole.id]}
    assert cures(state) == {"h0002": sentence(whole.advice)}


def test_rows_stand_still_until_another_order_is_asked_for() -> None:
    order, asked = Steady(), Question("", "rate", 0, 2)

    def shown(*names: str) -> list[dict[str, Any]]:
        return list(page_of(names, asked, lambda name: {"id": name}, order=order).rows)

    assert shown("b", "a", "c") == [{"id": "b"}, {"id": "a"}] and not order.moved
    assert shown("c", "a", "b") == [{"id": "b"}, {"id": "a"}] and order.moved
    assert shown("d", "a", "c") == [{"id": "a"}, {"id": "c"}], "new ones are last"
    assert order.keep(["d", "c", "a"]) == ["a", "c", "d"]
    order.forget()
    assert shown("d", "a", "c") == [{"id": "d"}, {"id": "a"}] and not order.moved


def test_a_host_with_a_dead_nic_is_marked() -> None:
    rows = {row["id"]: row for row in host_rows(cluster_state(dead=(("h0002", "eth1"),)))}
    assert rows["h0002"]["bad"] and rows["h0002"]["nics"] == "1 of 2 work"
    assert not rows["h0001"]["bad"]


PAIR: Any = {
    **{"src": "A", "dst": "B", "active": True, "striped": False, "group": 5, "tx_bps": 90e6},
    "fair_bps": 100_000_000,
    "paths": [
        {
            **{"own": f"eth{number}", "peer": f"eth{number}", "network": f"n{number}"},
            **{"vlan": 12 * number or None, "alive": not number, "share": 0.75 - number / 2},
            **{"slots": 48 - 32 * number, "tx_bps": 60e6 - 30e6 * number, "rx_bps": 0.0},
            **{"rate_bps": None if number else 1e9, "speed_bps": 10**9},
            **{"link": None, "helper": None},
        }
        for number in (0, 1)
    ],
}


def test_a_pair_and_its_paths() -> None:
    row = pair_rows([PAIR])[0]
    assert (row["key"], row["rate"], row["state"], row["bad"]) == (
        *("A B", "90.0 Mbit/s", "active"),
        True,
    )
    assert row["shares"] == "eth0 to eth0 75.0 %, eth1 to eth1 (VLAN 12) 25.0 %"
    assert row["part"] == "90.0 %"
    free: Any = {**PAIR, "fair_bps": None}
    assert pair_rows([free])[0]["part"] == "-"
    paths = path_rows(PAIR)
    assert [path["planned"] for path in paths] == ["1.00 Gbit/s", "-"]
    assert [path["speed"] for path in paths] == ["1.00 Gbit/s", "1.00 Gbit/s"]
    assert [path["weight"] for path in paths] == ["48 of 64 slots", "16 of 64 slots"]
    assert paths[1]["network"] == "n1, VLAN 12" and paths[1]["alive"] == "dead"


def test_a_page_of_pairs_is_asked_for_as_the_controller_wants_it() -> None:
    assert pair_request(sort="rate", offset=50) == {
        **{"sort": "rate", "active": True, "offset": 50, "limit": 50}
    }
    assert pair_request(sort="slow", host="A", active=False)["active"] is True
    assert pair_request(sort="dst", active=False) == {"sort": "dst", "offset": 0, "limit": 50}
    assert pair_request(sort="any", active=False)["sort"] == "src", "an order that stands still"


def test_samples_of_a_pair_are_bounded_and_paths_may_come_and_go() -> None:
    samples = PairSamples()
    one_path: Any = {**PAIR, "paths": PAIR["paths"][:1]}
    samples.add(1.0, PAIR)
    samples.add(1.0, PAIR)
    samples.add(2.0, one_path)
    assert samples.weights == {"eth0 to eth0": [0.75, 1.0], "eth1 to eth1 (VLAN 12)": [0.25, None]}
    for number in range(2 * MAX_POINTS):
        samples.add(3.0 + number, PAIR)
    assert (
        {len(values) for values in samples.rates.values()} == {MAX_POINTS} == {len(samples.times)}
    )


def test_charts_of_rates_and_shares() -> None:
    lines: dict[str, list[float | None]] = {"eth0": [3e6, 0.0, None], "eth1": [1e6, 0.0, 2e6]}
    rates = rate_chart("A", [1.0, 2.0, 3.0], lines)
    assert rates["series"][0]["data"] == [[1000, 3.0], [2000, 0.0], [3000, None]]
    assert rates["xAxis"]["name"] == "time (UTC)" and rates["yAxis"]["name"] == "Mbit/s"
    kinds = [series["lineStyle"]["type"] for series in rates["series"]]
    assert len({*kinds}) == 2, "not by colour alone"
    high = rate_chart("A", [1.0], {"all": [12e9]})
    assert high["yAxis"]["name"] == "Gbit/s" and high["series"][0]["data"] == [[1000, 12.0]]
    shares = share_chart("A", [1.0, 2.0, 3.0], lines)
    assert [series["data"] for series in shares["series"]] == [
        [[1000, 75.0], [2000, None], [3000, None]],
        [[1000, 25.0], [2000, None], [3000, 100.0]],
    ]
    newest = {"eth0": None, "eth1": 5e6}
    assert chart_summary("A has sent", [1.0, 2.0, 3.0], lines, newest) == (
        "A has sent since 1970-01-01 00:00:01 UTC: eth0 - now, 1.50 Mbit/s on average, "
        "3.00 Mbit/s at most; eth1 5.00 Mbit/s now, 2.00 Mbit/s on average, 5.00 Mbit/s at most."
    )
    assert "eth1 5.00 Mbit/s last" in chart_summary("A", [1.0, 2.0, 3.0], lines, newest, old=True)
    assert chart_summary("A", [], {}, {}) == "A: nothing is known yet."


def test_the_newest_rates_of_a_chart_are_those_of_the_rows() -> None:
    state = cluster_state(hosts=3, nics=2)
    rows = [sum(nic[0] for nic in state["rates"][name].values()) for name in state["hosts"]]
    assert newest_rates(state, "", "tx") == {ALL: sum(rows)}
    of_host = newest_rates(state, "h0002", "rx")
    assert of_host == {nic: rx for nic, (_, rx) in state["rates"]["h0002"].items()}
    del state["rates"]["h0002"]
    assert newest_rates(state, "h0002", "rx") == {"eth0": None, "eth1": None}


def test_what_is_old_is_not_said_to_be_so() -> None:
    state = cluster_state(hosts=3, dead=(("h0002", "eth0"),), away=("h0003",))
    said = [host_row(state, name, old=True)["nics"] for name in state["hosts"]]
    assert said == ["2 of 2 worked", "1 of 2 worked", "was away"]
    words = [cells(state, [name], old=True)["0-1"][1] for name in state["hosts"]]
    assert words == ["was good", "had 1 dead NIC", "was away"]
    shown = details(state, "h0002", old=True)
    assert "was dead" in shown and "was good" in shown and "was connected" in shown


@given(st.integers(0, 700), st.integers(1, 200))
def test_a_thinned_line_ends_with_the_newest_point_and_is_short(count: int, points: int) -> None:
    times = [float(number) for number in range(count)]
    thin, lines = thinned(times, {"x": [float(number) for number in range(count)]}, points)
    assert len(thin) == len(lines["x"]) <= points + 1
    assert thin[-1:] == times[-1:]
    for point, average in zip(thin, lines["x"], strict=True):
        assert average is not None and abs(point - average) < count / points + 1
    if count <= points:
        assert thin == times == lines["x"]


# ---- Events


def test_an_event_is_shown_by_its_code_and_not_by_its_text() -> None:
    seen = event(1, "host_disconnected", {"host": "A"}) | {"text": "A is in charge again"}
    (row,) = event_rows({"events": [seen]})
    assert (row["severity"], row["what"], row["text"]) == ("bad", "Problem", seen["text"])
    assert row["advice"] == sentence(seen["advice"]) != ""
    (row,) = event_rows({"events": [event(1, "nic_up", {"host": "lost", "nic": "dead"})]})
    assert (row["severity"], row["advice"]) == ("info", "")


def test_an_event_of_an_earlier_controller_is_information() -> None:
    (row,) = event_rows({"events": [{"seq": 1, "time_s": NOW_S, "text": "A disconnected"}]})
    assert (row["severity"], row["advice"], row["text_href"]) == ("info", "", "")


def test_events_are_found_by_text_host_and_severity() -> None:
    state: Any = {
        "events": [
            event(1, "host_disconnected", {"host": "A"}),
            event(2, "nic_sends_again", {"host": "A", "nic": "eth0"}) | {"text": "eth0 again"},
            event(3, "nic_down", {"host": "B", "nic": "eth0"}) | {"text": "eth0 is down"},
            event(4, "host_disconnected", {"host": "AB"}),
            event(5, "job_begun", {"job": "B"}, user="u", hosts=["A", "C"], policy="paths"),
        ]
    }
    assert [row["key"] for row in event_rows(state)] == [5, 4, 3, 2, 1], "the newest first"
    assert [each["seq"] for each in events_found(state, host="A")] == [5, 2, 1]
    assert [each["seq"] for each in events_found(state, host="B")] == [3], "a job is no host"
    assert [row["key"] for row in event_rows(state, search="ETH0 again")] == [2]
    assert [row["key"] for row in event_rows(state, severities=("bad",))] == [4, 1]
    known: dict[str, Any] = {"hosts": {"B": {}, "C": {}}, "jobs": {}}
    places = [row["text_href"] for row in event_rows({**state, **known})]
    assert places == ["/?host=C", "", "/?host=B", "", ""]
    known["jobs"] = {"B": {}}
    assert event_rows({**state, **known})[0]["text_href"] == "/jobs?search=B"


def test_problems_come_with_what_to_do_the_worst_first() -> None:
    rows = problem_rows(cluster_state(dead=(("h0001", "eth0"),), away=("h0002",)))
    problems = [
        Problem("nic_hears_nothing", {"host": "h0001", "nic": "eth0"}),
        Problem("host_away", {"host": "h0002"}),
    ]
    assert [row["text"] for row in rows] == [each.text for each in problems]
    assert [row["advice"] for row in rows] == [sentence(each.advice) for each in problems]
    assert [row["text_href"] for row in rows] == ["/?host=h0001", "/?host=h0002"]


# ---- Settings


def test_each_strategy_is_described() -> None:
    assert STRATEGIES.keys() == OF_THE_CONTROLLER.keys()


def test_a_confirmation_says_what_will_happen() -> None:
    said = " ".join(consequences(cluster_state(hosts=5, away=("h0001",)), "round_robin"))
    assert "from max_min to round_robin" in said and "4 connected hosts" in said
    assert "Within 0.25 s" in said and "5 active pairs" in said and "cluster.yaml" in said
    assert consequences(EMPTY, "max_min"), "before the controller was reached, too"


def parameters() -> list[Any]:
    """All parameters, as a controller without a cluster.yaml lists them."""
    return [{**each} for each in list_parameters(cluster_of({}))["parameters"]]


def test_parameters_have_ranges_and_an_admin_alone_may_change_them() -> None:
    rows = {row["id"]: row for row in parameter_rows(parameters(), ADMIN)}
    assert rows.keys() == PARAMETERS.keys() - {"strategy"}
    assert rows["hbspan_min_s"]["range"] == "0.1 to 60 s"
    assert rows["slots"]["actions"] == "" and "cluster.yaml" in rows["slots"]["about"]
    assert rows["active_bps"]["range"] == "1.00 kbit/s to 1.00 Tbit/s"
    assert rows["settle_s"]["actions"] == "change"
    changed: Any = [{**each, "value": 2.0} for each in parameters() if each["name"] == "settle_s"]
    assert parameter_rows(changed, ADMIN)[0]["actions"] == "change reset"
    assert not any(row["actions"] for row in parameter_rows(parameters(), VIEWER))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        *(("hysteresis", "0.1", 0.1), ("loss_min_packets", "1,000", 1000)),
        *(("hysteresis", "0.6", None), ("hysteresis", "nan", None), ("hysteresis", "", None)),
        *(("loss_min_packets", "10.5", None), ("strategy", "none", None)),
        *(("strategy", "max_min", "max_min"), ("active_bps", "64k", 64000)),
        ("active_bps", "1", None),
    ],
)
def test_a_value_is_in_its_range_or_refused(name: str, text: str, value: object) -> None:
    parameter = next(each for each in parameters() if each["name"] == name)
    if value is None:
        with pytest.raises(BadInput) as wrong:
            parameter_value(parameter, text)
        assert wrong.value.key == name
        assert wrong.value.code in ("not_number_within", "not_whole_within", "not_one_of")
    else:
        assert parameter_value(parameter, text) == value


def test_tokens_are_listed_without_their_hashes() -> None:
    tokens = {**FakeFeed().tokens}
    tokens["user"] = {**tokens["user"], "expires_s": NOW_S - 1}
    rows = token_rows(tokens, ADMIN, NOW_S)
    assert [row["id"] for row in rows] == ["admin", "user", "viewer"]
    assert rows[1]["expires"] == "has expired" and rows[0]["expires"] == "never"
    assert not any(token["hash"][:8] in str(rows) for token in tokens.values())
    assert [row["id"] for row in token_rows(tokens, ADMIN, NOW_S, "alice")] == ["user"]
    assert not any(row["actions"] for row in token_rows(tokens, VIEWER, NOW_S))


@pytest.mark.parametrize(
    ("form", "field", "code"),
    [
        (("", "viewer", "", ""), "Name", "name_form"),
        (("a b", "viewer", "", ""), "Name", "name_form"),
        (("a", "root", "", ""), "Role", "value_not_one_of"),
        (("a", "user", "", ""), "User", "token_user_missing"),
        (("a", "admin", "", "0"), "Days", "days_form"),
        (("a", "admin", "", "9" * 40), "Days", "days_form"),
    ],
)
def test_a_token_that_cannot_be(form: tuple[str, str, str, str], field: str, code: str) -> None:
    with refused(code, field):
        token_request(*form)


def test_a_token_of_a_form() -> None:
    assert token_request(" a ", "user", "alice", "90") == {
        **{"name": "a", "role": "user", "user": "alice", "days": 90}
    }
    assert token_request("a", "admin", "", "") == {"name": "a", "role": "admin"}


def test_who_changed_what_is_read_from_events() -> None:
    job = {"job": "o1"}
    events = [
        event(1, "host_disconnected", {"host": "A"}),
        event(2, "parameter_set_by", parameter="strategy", value="round_robin", by="carol"),
        event(3, "parameter_set", parameter="hysteresis", value="0.2"),
        event(4, "job_moved_back", job, user="alice", by="carol"),
        event(5, "job_ended_by", job, user="alice", by="alice"),
        {"seq": 6, "time_s": NOW_S, "text": "strategy is max_min: an earlier one has set it"},
    ]
    assert [(row["who"], row["what"]) for row in audit_rows(events)] == [
        ("alice", "ended job o1 of alice"),
        ("carol", "moved job o1 of alice back"),
        ("carol", "set strategy to round_robin"),
    ]


def test_the_audit_trail_tells_of_refusals_too() -> None:
    entry: Any = {
        **{"seq": 1, "time_s": NOW_S, "user": "carol", "role": "admin", "via": "web"},
        **{"op": "parameters_set", "what": "name=strategy value=max_min"},
        **{"ok": True, "error": None},
    }
    refused: Any = {**entry, "seq": 2, "user": "bob", "ok": False, "error": "needs the role admin"}
    rows = audit_entry_rows([entry, refused])
    assert [(row["who"], row["result"], row["bad"]) for row in rows] == [
        ("bob (admin, web)", "refused: needs the role admin", True),
        ("carol (admin, web)", "done", False),
    ]
    assert [row["key"] for row in audit_entry_rows([entry, refused], "CAROL max_min")] == [1]


def test_versions_and_the_config_hash() -> None:
    facts = {row["id"]: row["value"] for row in fact_rows(cluster_state(), "0.1.0")}
    assert facts["Config hash"] == "04980fbe67dcd7ea" and facts["In charge"] == "yes"
    assert facts["Store"] == "of its own" and facts["Open vSwitch of the hosts"] == "3.1.0"
    waiting = fact_rows(state_of(controller={"waits_because": "another was first"}), "0.1.0")
    assert {"id": "In charge", "value": "no: another was first"} in waiting


def test_a_thousand_hosts_cost_a_page() -> None:
    """What is made of a state grows with its hosts, and no row has more than a few texts."""
    state = cluster_state(hosts=1000, jobs=500)
    rows = host_rows(state)
    assert len(rows) == 1000 and max(len(str(row)) for row in rows) < 400
    assert len(host_rows(state, "name", "h099")) == 10
