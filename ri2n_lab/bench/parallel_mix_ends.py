# SPDX-License-Identifier: Apache-2.0
"""One client process of the connection-heavy mix.

`python -m ri2n_lab.bench.parallel_mix_ends SETTINGS`. It connects, reads what it asked for, closes,
and does so again until the window is over. It says "ready", reads the time to start
(CLOCK_MONOTONIC, which namespaces share) from stdin, and prints one line of JSON at the end.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

from ri2n_lab.bench.parallel_ends import EndSettings, connect
from ri2n_lab.bench.parallel_wire import BUFFER_BYTES, GIVE, HEAD

__all__ = ["MixSettings", "main", "run"]

LIMIT_S = 30.0
MAX_ERRORS = 5
PAUSE_S = 0.01  # after a refused connection, so that a server that is down is not hammered

Json = dict[str, Any]


@dataclass(frozen=True)
class MixSettings:
    """What one process does: connections of `unit_bytes` x `times`.

    `number` is its place among all processes. It begins at the start, and counts in the window of
    `window_s` that begins `warmup_s` after that.
    """

    ends: EndSettings
    method: str
    number: int
    unit_bytes: int
    times: int
    warmup_s: float
    window_s: float


def run(settings: MixSettings, start_s: float) -> Json:
    """{"bytes", "served", "failed", "errors"}: of the window, as numbers of each but the last.

    Connections that failed were refused or broken; `errors` are the first MAX_ERRORS of these, with
    the seconds since the start. A connection that is served in the window in part
    counts in part, by its bytes.
    """
    begin_s = start_s + settings.warmup_s
    end_s = begin_s + settings.window_s
    wanted = settings.unit_bytes * settings.times
    counted = failed = done = 0
    errors: list[str] = []
    buffer = memoryview(bytearray(BUFFER_BYTES))
    time.sleep(max(0.0, start_s - time.monotonic()))  # everybody's moment
    while (now := time.monotonic()) < end_s:
        try:
            stream = connect(settings.ends, *_how(settings, done))
            done, got = done + 1, 0
            try:
                stream.settimeout(min(LIMIT_S, max(0.001, end_s - time.monotonic())))
                stream.sendall(HEAD.pack(GIVE, settings.unit_bytes, wanted))
                while got < wanted and now < end_s:
                    count = stream.recv_into(buffer)
                    if not count:
                        raise ConnectionError("the server closed the connection")
                    got += count
                    now = time.monotonic()
                    counted += count if begin_s <= now < end_s else 0
            finally:
                _close(stream, whole=got == wanted)
        except OSError as error:
            now = time.monotonic()
            if now < end_s:  # not only out of time
                if now >= begin_s:
                    failed += 1
                    errors.append(f"{now - start_s:.3f} s: {type(error).__name__}: {error}")
                time.sleep(PAUSE_S)
    return {
        "bytes": counted,
        "served": counted / wanted,
        "failed": failed,
        "errors": errors[:MAX_ERRORS],
    }


def _how(settings: MixSettings, done: int) -> tuple[str, int, int]:
    """The method, the number of streams, and which address the `n`-th connection goes to.

    For "dns", the n-th connection of process k goes to address k + n: a name server that gives its
    addresses in turn does about that.
    """
    if settings.method == "parallel":
        return ("parallel", 1, 0)
    return ("tcp", 1, settings.number + done if settings.method == "dns" else 0)


def _close(stream: Any, *, whole: bool) -> None:
    """Close the connection, at once if it was left in the middle.

    What it still would get must not be in the way of others.
    """
    with contextlib.suppress(OSError):
        if not whole and hasattr(stream, "abort"):
            stream.abort()
        stream.close()


def main() -> None:
    """The command line that the bench starts."""
    values = json.loads(sys.argv[1])
    ends = values.pop("ends")
    settings = MixSettings(EndSettings(**{**ends, "addresses": tuple(ends["addresses"])}), **values)
    print("ready", flush=True)
    print(json.dumps(run(settings, float(sys.stdin.readline()))), flush=True)


if __name__ == "__main__":
    main()
