# SPDX-License-Identifier: Apache-2.0
"""Counting a stream, and iperf3's window, with arrivals that are made up."""

from __future__ import annotations

import math
import socket
import threading
from typing import Any

import pytest

from ri2n_lab.traffic import stream_ends as traffic
from ri2n_lab.traffic.iperf import window_goodput_bps
from ri2n_lab.traffic.stream_ends import analyse, receive, send
from ri2n_lab.traffic.streams import StreamResult, _merge
from ri2n_sdn.errors import NotAvailable

MS = 1_000_000


def arrivals(*packets: tuple[int, int, float]) -> list[tuple[int, int, int, int]]:
    """(flow, sequence, arrival in ms) as `analyse` takes them, each sent 1 ms before."""
    return [(flow, sequence, int((at - 1) * MS), int(at * MS)) for flow, sequence, at in packets]


def test_a_clean_stream() -> None:
    counts = analyse(
        arrivals((0, 0, 1), (1, 0, 2), (0, 1, 3), (1, 1, 4), (0, 2, 5)), (5, 0, 4 * MS)
    )
    assert (counts["sent"], counts["received"], counts["lost"]) == (5, 5, 0)
    assert (counts["duplicates"], counts["out_of_order"], counts["lost_runs"]) == (0, 0, [])
    assert [flow["sent"] for flow in counts["flows"]] == [3, 2]
    assert counts["longest_gap_ms"] == pytest.approx(1)
    assert counts["latency_ms"]["p50"] == pytest.approx(1)


def test_loss_duplicate_and_order() -> None:
    packets = arrivals((0, 0, 1), (0, 3, 2), (0, 1, 3), (0, 1, 4), (0, 6, 40))
    counts = analyse(packets, (9, 0, 45 * MS))
    assert (counts["received"], counts["lost"]) == (4, 5)
    assert (counts["duplicates"], counts["out_of_order"]) == (1, 1)
    assert counts["lost_runs"] == [[0, 2, 2], [0, 4, 5], [0, 7, 8]]
    assert counts["longest_gap_ms"] == pytest.approx(36)
    assert [round(gap["ms"]) for gap in counts["gaps"]] == [36]


def test_silence_at_either_end_is_a_gap() -> None:
    counts = analyse(arrivals((0, 50, 50), (0, 51, 51)), (1000, 0, 999 * MS))
    assert [round(gap["ms"]) for gap in counts["gaps"]] == [50, 948]
    assert counts["longest_gap_ms"] == pytest.approx(948)


def test_nothing_arrived() -> None:
    counts = analyse([], (100, 0, 99 * MS))
    assert (counts["sent"], counts["lost"], round(counts["longest_gap_ms"])) == (100, 100, 99)
    assert math.isnan(counts["latency_ms"]["p50"])


def sender(sent: int, flows: int) -> dict[str, Any]:
    """A sender's report: one packet per ms from second 1 on."""
    offsets = [1000 * index for index in range(sent)]
    return {
        "sent": sent,
        "flows": flows,
        "errors": 0,
        "late_ms": 0.0,
        "first_ns": 10**9,
        "offsets_us": offsets,
    }


def merged(
    packets: list[tuple[int, int, int, int]], sent: int, flows: int, *, end: bool = True
) -> StreamResult:
    """The reports of both sides as one result."""
    marker = (sent, 10**9, 10**9 + (sent - 1) * MS) if end else None
    return _merge(sender(sent, flows), analyse(packets, marker))


def test_losses_get_the_time_of_sending() -> None:
    result = merged(arrivals((0, 0, 1000), (1, 0, 1001), (0, 1, 1002)), 6, 2)
    assert result.lost == 3
    assert result.lost_at_s == pytest.approx([1.003, 1.004, 1.005])
    assert result.lost_after(1.0035) == 2


@pytest.mark.parametrize("end", [True, False])
def test_a_whole_flow_lost_is_seen(end: bool) -> None:
    packets = arrivals(*((0, sequence, 1000 + 2 * sequence) for sequence in range(5)))
    result = merged(packets, 10, 2, end=end)
    assert (result.sent, result.received, result.lost) == (10, 5, 5)
    assert [flow["lost"] for flow in result.flows] == [0, 5]
    assert len(result.lost_at_s) == 5


def test_silence_for_ever_lasts_to_the_last_packet_sent() -> None:
    packets = arrivals(*((0, sequence, 1000 + sequence) for sequence in range(10)))
    result = merged(packets, 100, 1, end=False)
    assert result.lost == 90
    assert result.longest_gap_ms == result.longest_flow_gap_ms == pytest.approx(90)
    assert [round(gap["ms"]) for gap in result.gaps] == [90]


def free_port() -> int:
    """A UDP port that nobody uses."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        probe.bind(("::", 0))
        return int(probe.getsockname()[1])


def receiving(timeout_s: float) -> tuple[threading.Thread, int, list[dict[str, Any]]]:
    """A receiver that is ready, its port, and what it has counted when its thread has ended."""
    results: list[dict[str, Any]] = []
    bound, port = threading.Event(), free_port()

    def work() -> None:
        results.append(receive(port=port, timeout_s=timeout_s, ready=bound.set))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert bound.wait(60)
    return thread, port, results


def test_a_stream_over_loopback() -> None:
    thread, port, results = receiving(timeout_s=120)
    report = send("127.0.0.1", port=port, pps=1000, seconds=0.5, flows=4, size=100)
    thread.join()
    assert report["sent"] == 500
    assert report["offsets_us"][-1] > 0.4e6  # paced, not sent in one burst
    (result,) = results
    # A receiver that reads late loses some packets, unless it is root.
    assert result["received"] + result["lost"] == 500 and result["complete"]
    assert result["received"] > 0


def test_a_sender_that_is_told_to_finish_ends_soon_and_says_how_much_it_sent() -> None:
    thread, port, results = receiving(timeout_s=120)
    asked = iter(range(10**9))
    report = send(
        "127.0.0.1", port=port, pps=1000, seconds=100, size=100, finish=lambda: next(asked) >= 50
    )
    thread.join()
    tail = round(1000 * traffic.TAIL_S)
    assert report["sent"] == len(report["offsets_us"]) == 50 + tail
    assert results[0]["sent"] == 50 + tail and results[0]["complete"]


def test_a_sender_told_to_finish_near_its_end_ends_as_planned() -> None:
    thread, port, results = receiving(timeout_s=120)
    report = send("127.0.0.1", port=port, pps=1000, seconds=0.1, size=100, finish=lambda: True)
    thread.join()
    assert report["sent"] == results[0]["sent"] == 100


def test_a_burst_is_sent_when_its_first_packet_is_due() -> None:
    thread, port, _ = receiving(timeout_s=120)
    report = send("127.0.0.1", port=port, pps=1000, seconds=0.1, size=100, burst=10)
    thread.join()
    offsets_us, late_us = report["offsets_us"], 1000 * report["late_ms"]
    for first in range(0, 100, 10):
        assert offsets_us[first] >= 1000 * first - late_us - 1
        # The others are not due one after the other: the last one would be 9 ms later.
        due_us = 1000 * first
        assert all(each <= due_us + late_us + 1 for each in offsets_us[first : first + 10])


def test_each_flow_has_the_source_port_that_was_named() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(60)
        ports = [free_port() for _ in range(3)]
        port = receiver.getsockname()[1]
        report = send("127.0.0.1", port=port, pps=1000, seconds=0.006, size=60, source_ports=ports)
        assert (report["sent"], report["flows"], report["errors"]) == (6, 3, 0)
        seen = [receiver.recvfrom(100) for _ in range(6)]
    flows = [traffic.HEADER.unpack_from(data)[2] for data, _ in seen]
    assert flows == [0, 1, 2, 0, 1, 2]
    assert [address[1] for _, address in seen] == [ports[flow] for flow in flows]


def test_a_receiver_ends_when_packets_and_end_marker_stay_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream whose path died for good."""
    monkeypatch.setattr(traffic, "SILENCE_S", 0.2)
    thread, port, results = receiving(timeout_s=10_000)
    packet = traffic.HEADER.pack(traffic.DATA, 1, 0, 4, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(packet, ("127.0.0.1", port))
    thread.join(60)
    assert not thread.is_alive(), "it waits for its whole limit"
    assert (results[0]["received"], results[0]["lost"], results[0]["complete"]) == (1, 4, False)


def test_a_receiver_goes_on_when_the_clock_of_its_stamps_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stamps, day_ns = iter(range(10**9)), 86_400_000_000_000
    stamp_ns = traffic._stamp_ns
    monkeypatch.setattr(
        traffic, "_stamp_ns", lambda extra: stamp_ns(extra) - (day_ns if next(stamps) > 2 else 0)
    )
    thread, port, results = receiving(timeout_s=120)
    send("127.0.0.1", port=port, pps=100, seconds=0.2, size=100)
    thread.join()
    assert (results[0]["received"], results[0]["complete"]) == (20, True)


def report(*seconds: tuple[float, float, float]) -> dict[str, Any]:
    """A server's report with intervals (start, end, bit/s)."""
    return {
        "intervals": [
            {"sum": {"start": a, "end": b, "bits_per_second": rate}} for a, b, rate in seconds
        ]
    }


def test_window() -> None:
    server = report((0, 1, 10.0), (1, 2, 20.0), (2, 3, 30.0), (3, 3.01, 999.0))
    assert window_goodput_bps(server, 1, 2) == pytest.approx(25)
    assert window_goodput_bps(server, 0.5, 1) == pytest.approx(15)
    with pytest.raises(NotAvailable, match="of the 10 s"):
        window_goodput_bps(server, 1, 10)
