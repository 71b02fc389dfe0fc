# SPDX-License-Identifier: Apache-2.0
"""Files that repeat facts of the contract for programs in other languages.

`python -m tests.contract_files` writes them; test_contract_readers.py says whether they are right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import TypedDictSchema

from ri2n_sdn.contract import choices, limits, names, units
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.schema import meanings
from tests.baseline.text import pretty

__all__ = ["FILES", "RATES"]

REPOSITORY = Path(__file__).parents[1]

RATES: Mapping[str, int | None] = {
    "1": 1,
    "9600": 9600,
    "64k": 64_000,
    "400M": 400_000_000,
    "2.5G": 2_500_000_000,
    "2.3G": 2_300_000_000,
    "0.001k": 1,
    "0.100000001G": 100_000_001,
    "33333.333k": 33_333_333,
    "007M": 7_000_000,
    "1Gbit/s": 10**9,
    "100000bit/s": 100_000,
    "1000000G": 10**15,
    "1000000000000000": 10**15,
    **dict.fromkeys(("", "k", ".", ".5G", "5.G", "-1", "+1", "1e9", "400 M", " 1", "1 ", "1T")),
    **dict.fromkeys(("0", "0.0G", "1.5", "0.0001k", "0.1000000001G", "100000.5", "1m", "infM")),
    **dict.fromkeys(("1000000.000000001G", "1000001G", "9" * 16, "9" * 17, "9" * 99, "1.2.3G")),
    **dict.fromkeys(("1bit", "1kbit", "1Gbps", "0x10", "NaN", "1\n", "٤M", "1_000")),
}
"""Rates as people write them, in bit/s; None: they are refused."""


class _Described(GenerateJsonSchema):
    def typed_dict_schema(self, schema: TypedDictSchema) -> dict[str, Any]:
        made = super().typed_dict_schema(schema)
        form: Any = schema["cls"]
        for key, text in meanings(form).items():
            made["properties"][key]["description"] = text
        return made


def json_schema(form: Any) -> dict[str, Any]:
    """The JSON Schema of a document, with the meanings of its keys."""
    made = TypeAdapter(form).json_schema(schema_generator=_Described)
    return {"$schema": _Described.schema_dialect, **made}


_SHELL_WORDS = {
    "JOB_ID_WORD": names.JOB_ID,
    "HOST_WORD": names.HOST_NAME,
    "USER_WORD": names.USER_NAME,
    "PATH_WORD": names.PATH_WORD,
    "RATE_WORD": units.RATE,
    "DURATION_WORD": units.DURATION,
    "POLICY_WORD": f"({'|'.join(choices.KINDS)})",
}
_SHELL_NUMBERS = {
    name: int(getattr(limits, name)) for name in limits.__all__ if name != "MAX_TOKEN_DAYS"
}
_SHELL_TABLES: Mapping[str, Mapping[str, int]] = {
    "RATE_FACTORS": {unit: factor for unit, factor in units.FACTORS.items() if unit},
    "DURATION_SECONDS": units.SECONDS,
}


def limits_sh() -> str:
    """ovs-host-scripts/limits.sh: the patterns and limits that the host's scripts check."""
    tables = (
        f"declare -rA {name}=({' '.join(f'[{key}]={value}' for key, value in table.items())})"
        for name, table in _SHELL_TABLES.items()
    )
    path = names.PATH_NAME.replace(names.PATH_WORD, "$PATH_WORD")
    return "\n".join(
        (
            "# SPDX-License-Identifier: Apache-2.0",
            "# shellcheck shell=bash disable=SC2034 # the scripts that source this file use these",
            "# Part of the scripts that source it: what names, rates and times look like,",
            "# and how large numbers are. `python -m tests.contract_files` makes it.",
            "",
            *(f"readonly {name}='{pattern}'" for name, pattern in _SHELL_WORDS.items()),
            f'readonly PATH_NAME="{path}"',
            *(f"readonly {name}={number}" for name, number in _SHELL_NUMBERS.items()),
            *tables,
            "",
        )
    )


def limits_json() -> str:
    """reorder/tests/limits.json: what the helper's tests read, which has rates of NICs alone."""
    return json.dumps({"rates": RATES}, indent=1) + "\n"


def schema_json() -> str:
    """docs/contract.schema.json: what the controller's state looks like, as JSON Schema."""
    return pretty(json_schema(Documents)) + "\n"


FILES = {
    REPOSITORY / "docs" / "contract.schema.json": schema_json,
    REPOSITORY / "ovs-host-scripts" / "limits.sh": limits_sh,
    REPOSITORY / "reorder" / "tests" / "limits.json": limits_json,
}
"""What each file must hold."""


if __name__ == "__main__":
    for file, made in FILES.items():
        file.write_text(made(), encoding="utf-8")
