# SPDX-License-Identifier: Apache-2.0
"""The parts of os-ken that the controller uses, imported without the others.

os-ken has a module of some thousand lines for the messages of each version of OpenFlow, and modules
for the packets of thirty protocols. It reads its settings with oslo.config, and its own version
with pbr. It imports all of them, which took half of the time of a controller's start. The
controller speaks OpenFlow 1.5 only, hands packets over as bytes, and leaves all settings as they
are. In the other versions a switch can do no more than greet, and be told that its version is not
spoken here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["PARSERS"]

# os_ken.lib.hub reads this when it is imported. "native" means plain threads.
os.environ["OSKEN_HUB_TYPE"] = "native"

_OTHERS = {1: "1_0", 3: "1_2", 4: "1_3", 5: "1_4"}
"""The names of the other versions that os-ken knows, by their number in messages."""

_HEADER_BYTES = 8
# Greetings of older versions have no elements: what follows the header has no meaning.
_FIRST_WITH_ELEMENTS = 4


class _Option:
    """A setting of os-ken, which has its default value."""

    def __init__(self, name: str, default: Any = None, **_: Any) -> None:
        self.name, self.default = name.replace("-", "_"), default


class _Settings(SimpleNamespace):
    """os-ken's settings by their names."""

    def register_opts(self, options: Sequence[_Option]) -> None:
        """Add settings: what os-ken calls when it is imported."""
        for option in options:
            setattr(self, option.name, option.default)

    register_cli_opts = register_opts


def _stand_in(name: str, **values: Any) -> None:
    """Put a module with these values in the place of one that has not been imported."""
    module = ModuleType(name)
    vars(module).update(values)
    sys.modules.setdefault(name, module)


def _replace() -> None:
    """Put stand-ins in the places of the parts that are not needed."""
    version = SimpleNamespace(version_string=lambda: "unknown")
    _stand_in("pbr", version=SimpleNamespace(VersionInfo=lambda _: version))
    _stand_in("pbr.version")
    importlib.import_module("os_ken")
    for name in ("pbr", "pbr.version"):  # others may need the real one
        if not hasattr(sys.modules[name], "__file__"):
            del sys.modules[name]
    kinds = ("StrOpt", "IntOpt", "FloatOpt", "BoolOpt", "ListOpt")
    _stand_in("os_ken.cfg", CONF=_Settings(), **dict.fromkeys(kinds, _Option))
    for name in _OTHERS.values():
        _stand_in(f"os_ken.ofproto.ofproto_v{name}_parser")
    # Constants for protocols are imported from this folder. Its own module imports all protocols.
    folder = importlib.util.find_spec("os_ken.lib.packet")
    assert folder is not None
    _stand_in("os_ken.lib.packet", __path__=folder.submodule_search_locations)
    # A message that is sent may hold a packet of this class; ours never do.
    _stand_in("os_ken.lib.packet.packet", Packet=type("Packet", (), {}))


_replace()

from os_ken.ofproto import ofproto_parser  # noqa: E402
from os_ken.ofproto import ofproto_v1_5 as ofp  # noqa: E402
from os_ken.ofproto import ofproto_v1_5_parser as parser  # noqa: E402

PARSERS = ofproto_parser._MSG_PARSERS
"""What makes a message of bytes, by the version in its header."""


def _other_version(
    datapath: Any, version: int, kind: int, length: int, xid: int, data: bytes
) -> Any:
    """A message of another version: before the greeting, all of them have the form of 1.5."""
    if kind == ofp.OFPT_HELLO and version < _FIRST_WITH_ELEMENTS:
        length, data = _HEADER_BYTES, data[:_HEADER_BYTES]
    return parser.msg_parser(datapath, version, kind, length, xid, data)


for _version in _OTHERS:
    PARSERS.setdefault(_version, _other_version)
