# SPDX-License-Identifier: Apache-2.0
"""The parts of the `ovs` package that the store uses, imported without eventlet.

The package imports eventlet where that is installed, only to ask whether it is in use. It is not:
the controller has plain threads. Its import takes longer than all others here, and it warns.
"""

from __future__ import annotations

import sys

_missing = object()
_eventlet = sys.modules.get("eventlet", _missing)
sys.modules["eventlet"] = None  # type: ignore[assignment]
try:
    from ovs.db.data import Datum
    from ovs.db.error import Error
    from ovs.db.idl import Idl, SchemaHelper, Transaction
    from ovs.db.schema import DbSchema
    from ovs.poller import POLLIN, Poller
    from ovs.stream import Stream
finally:
    if _eventlet is _missing:
        del sys.modules["eventlet"]
    else:
        sys.modules["eventlet"] = _eventlet  # type: ignore[assignment]

__all__ = [
    "POLLIN",
    "Datum",
    "DbSchema",
    "Error",
    "Idl",
    "Poller",
    "SchemaHelper",
    "Stream",
    "Transaction",
]
