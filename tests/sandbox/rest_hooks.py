# SPDX-License-Identifier: Apache-2.0
"""What schemathesis is told before it sends a request; `SCHEMATHESIS_HOOKS` names this file."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Let streams end at once, and keep the tokens of the test.

    Otherwise each stream would last for a day. And an admin who has removed the token with which
    all requests are made is answered nothing but 401 from then on.
    """
    if case.operation.path.endswith("stream"):
        case.query = {**(case.query or {}), "max_s": 0}
    name = str((case.path_parameters or {}).get("name", ""))
    if case.operation.label == "DELETE /tokens/{name}" and "-of-the-test-" in name:
        case.path_parameters = {**case.path_parameters, "name": "none"}
