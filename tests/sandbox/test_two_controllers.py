# SPDX-License-Identifier: Apache-2.0
"""Two controllers on the same bridges that say nothing of themselves, as others' controllers do.

Each finds out by its audits, and says so in `status`. Those that say who they are, and the second
of which stands back, are in test_store_two.py.
"""

from __future__ import annotations

from typing import Any

from ri2n_lab.cluster.sandbox import ANSWER_S, Sandbox, reserve_port
from ri2n_sdn.client import call
from tests.problem_texts import problem_texts
from tests.waiting import LONG_S, wait_until

from .frames import Capture, await_problems, udp

HOSTS = ("A", "B")
# Audits follow each other quickly, and each controller soon removes what it does not use, so that
# the other's next audit does not find it.
OFTEN = """
import ri2n_sdn.apps.charge as charge, ri2n_sdn.apps.trunk as trunk
trunk._AUDIT_S, trunk._UNUSED_GROUP_S = 1.0, 0.5
charge.Charge._say_hello = lambda self, channel: None
"""


def test_two_controllers_with_other_settings_are_both_told() -> None:
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}) as sandbox:
        reserved, port = reserve_port()
        socket, config = sandbox.folder / "second.sock", sandbox.folder / "second.yaml"
        config.write_text("slots: 128\n" + sandbox.declared())

        warnings: list[dict[str, Any]] = []

        def warned(status: dict[str, Any]) -> bool:
            lines = [line for line in problem_texts(status) if "changes its rows" in line]
            return {line.split(":")[0] for line in lines} == set(HOSTS)

        sandbox.start_controller(before=OFTEN, config="slots: 64\n" + sandbox.declared())
        status = sandbox.wait_settled()
        repairs = status["counters"].get("audit_repairs", 0)
        await_problems(sandbox)
        assert not repairs
        argv = ["controller", "--listen", f"127.0.0.1:{port}"]
        argv += ["--socket", str(socket), "--config", str(config)]
        argv += ["--state-dir", str(sandbox.folder / "second")]
        second = sandbox.spawn(OFTEN, argv, sandbox.folder / "second.log")
        try:
            for name in HOSTS:
                first = sandbox.ovs.vsctl("get-controller", name).strip()
                sandbox.ovs.vsctl("set-controller", name, first, f"tcp:127.0.0.1:{port}")

            def first_warns() -> bool:
                warnings[:] = [sandbox.ask("status")]
                return warned(warnings[0])

            wait_until(first_warns, lambda: f"{problem_texts(sandbox.ask('status'))}")
            few = warnings[0]["counters"]["audit_repairs"]
            wait_until(
                lambda: warned(call(socket, "status", timeout_s=ANSWER_S)),
                lambda: f"{problem_texts(call(socket, 'status'))}",
            )
            assert few <= 6 * len(HOSTS), f"only after {few} audits that found rows changed"
            frames = [udp(sandbox.mac("A"), sandbox.mac("B"), (number, 1)) for number in range(16)]
            capture = Capture(sandbox)
            sandbox.receive("A", *frames)
            capture.expect({"B": frames})
            second.kill()
            assert second.wait(LONG_S)
            wait_until(
                lambda: not warned(sandbox.ask("status")),
                "the warning stays when the other one has gone",
            )
            assert "Traceback" not in sandbox.log() + (sandbox.folder / "second.log").read_text()
        finally:
            second.kill()
            second.wait(LONG_S)
            reserved.close()
