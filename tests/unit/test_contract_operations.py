# SPDX-License-Identifier: Apache-2.0
"""Each operation answers with the document that the contract names, and with no other key."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter

from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.contract import answers, documents, operations
from ri2n_sdn.contract.operations import OPERATIONS, WATCH, Operation
from tests.baseline.local import local


def test_answers_are_the_documents_of_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    """All answers of the baseline's transcripts, as they are on the socket."""
    # The types of the operations' constants, which are names in the file.
    known = {"answers": answers, "documents": documents}
    hints = get_type_hints(operations, localns=known)
    adapters = {
        each.name: TypeAdapter(get_args(hints[name])[0])
        for name, each in vars(operations).items()
        if isinstance(each, Operation)
    }
    assert adapters.keys() == OPERATIONS.keys()
    answered: Counter[str] = Counter()
    answer_of = LocalApi.answer

    def answer(api: LocalApi, line: bytes, *rest: Any, **more: Any) -> dict[str, Any]:
        made = answer_of(api, line, *rest, **more)
        if made["ok"] and "watcher" not in made:
            request = json.loads(line)
            name = request["op"]
            sent = json.loads(json.dumps({key: made[key] for key in made if key != "ok"}))
            read = adapters[name].validate_json(json.dumps(sent), strict=True)
            # Keys that a document does not name are left out of what is read.
            assert adapters[name].dump_python(read, mode="json") == sent, name
            answered[name] += 1
            strange = OPERATIONS[name].strange(request)
            assert not strange, (name, strange)
        return made

    monkeypatch.setattr(LocalApi, "answer", answer)
    assert local()
    assert answered.keys() == OPERATIONS.keys() - {WATCH.name}
