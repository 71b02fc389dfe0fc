# SPDX-License-Identifier: Apache-2.0
"""`ri2n doctor --controller` on a real controller: as it runs, with a damage, and gone."""

from __future__ import annotations

import json
from typing import Any

from ri2n_lab.cluster.sandbox import Sandbox, execute
from tests.unit.commands import ri2n


def findings(sandbox: Sandbox) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """(exit code, findings by check)."""
    done = ri2n("doctor", "--controller", "--json", "--socket", str(sandbox.socket))
    found: dict[str, list[dict[str, Any]]] = {}
    for each in json.loads(done.stdout)["findings"]:
        found.setdefault(each["check"], []).append(each)
    return done.returncode, found


def wrong(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    return [row["seen"] for rows in found.values() for row in rows if row["verdict"] == "bad"]


def test_a_real_controller() -> None:
    with Sandbox({"A": ["n0", "n1"], "B": ["n0", "n1"]}) as sandbox:
        sandbox.spawn = execute
        process = sandbox.start_controller(extra=["--log-format", "json"])
        sandbox.wait_settled()
        _, found = findings(sandbox)
        assert wrong(found) == []
        assert found["hosts"][0]["seen"] == "2 of 2 hosts are connected"
        assert f"127.0.0.1:{sandbox.port}" in found["OpenFlow port"][0]["seen"]
        assert f"process {process.pid}" in found["controller"][0]["seen"]
        assert {row["verdict"] for row in found["sockets"]} == {"ok"} and len(found["sockets"]) == 3
        assert "own store" in found["store"][0]["seen"] and "ri2n.db" in found["store"][1]["seen"]
        assert "of 2 hosts" not in found["limits"][0]["seen"]
        assert found["cluster.yaml"][0]["verdict"] == "ok"

        sandbox.socket.chmod(0o666)
        (sandbox.folder / "cluster.yaml").write_text("nonsense: 1\n")
        code, found = findings(sandbox)
        assert code == 2 and len(wrong(found)) == 2
        sandbox.socket.chmod(0o600)

        sandbox.kill_controllers()
        code, found = findings(sandbox)
        assert code == 2 and found["controller"][0]["verdict"] == "bad"
        # Each line of the log is a document, and so is what the store's server has to say.
        lines = sandbox.log().splitlines()
        assert lines and all(json.loads(line)["message"] for line in lines)
