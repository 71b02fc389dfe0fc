# SPDX-License-Identifier: Apache-2.0
"""The demo's traffic while the user looks around: that of two users, until the demo ends."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from ri2n_lab.cluster import Lab
    from ri2n_lab.traffic.iperf import IperfRun

__all__ = ["EVERYBODY", "JOB_USER", "Traffic"]

JOB_USER, EVERYBODY = 20001, 20002
"""The ids of two users: the owner of the job that can be tried, and the owner of all else."""

# Transfers of this length follow each other.
TRAFFIC_S = 120.0
RETRY_S = 1.0
JOB_S = 24 * 3600.0
JOB_PORT = 5301


class Traffic:
    """Transfers of EVERYBODY that follow each other, and one stream of JOB_USER when wanted."""

    def __init__(self, lab: Lab, server: str, clients: list[str], streams: int) -> None:
        """Nothing is sent yet: `run` sends."""
        self._lab, self._server = lab, server
        self._wish = clients, streams
        self._changed = threading.Event()
        self._job: IperfRun | None = None

    def run(self) -> None:
        """Send until KeyboardInterrupt.

        Whatever the user breaks meanwhile may end a transfer, and the next one begins soon.
        """
        while True:
            self._changed.clear()
            clients, streams = self._wish
            try:
                run = self._start(clients, streams, TRAFFIC_S, EVERYBODY, 5201)
            except NotAvailable:
                self._changed.wait(RETRY_S)
                continue
            try:
                while not self._changed.wait(RETRY_S):
                    if run.ended or time.monotonic() > run.start_s + TRAFFIC_S:
                        break
            finally:
                run.stop()

    def change(self, clients: list[str], streams: int) -> None:
        """Let these clients send from now on, with so many streams each."""
        self._wish = clients, streams
        self._changed.set()

    def begin_job(self, client: str) -> None:
        """Let a program of JOB_USER send one stream from a client."""
        if self._job is None:
            self._job = self._start([client], 1, JOB_S, JOB_USER, JOB_PORT)

    def end_job(self) -> None:
        """End that program."""
        job, self._job = self._job, None
        if job is not None:
            with suppress(NotAvailable):
                job.stop()

    def _start(
        self, clients: list[str], streams: int, seconds: float, user: int, port: int
    ) -> IperfRun:
        from ri2n_lab.bench.jobs import as_user
        from ri2n_lab.traffic.iperf import IperfRun

        return IperfRun(
            self._lab,
            self._server,
            clients,
            streams=streams,
            seconds=seconds,
            first_port=port,
            # iperf3 makes a file for each stream, and removes it at once. Users may not write
            # wherever root keeps temporary files.
            prefix=("env", "TMPDIR=/tmp", *as_user(user)),
        )
