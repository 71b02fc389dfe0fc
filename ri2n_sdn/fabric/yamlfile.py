# SPDX-License-Identifier: Apache-2.0
"""Read a YAML file into a frozen pydantic model.

Each error is one line that names the file and the key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ri2n_sdn.errors import BadInput

__all__ = [
    "StrictModel",
    "WrongFile",
    "all_of",
    "key_path",
    "load_model",
    "parse_model",
    "read_text",
]


class StrictModel(BaseModel):
    """The base of all file formats.

    Unknown keys are errors, values are not converted to other types, and the result is frozen.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class WrongFile(BadInput):
    """A file that does not fit its model. The text has the first error, `errors` has all of them.

    Each of `errors` is `FILE: key.path: what is wrong`.
    """

    def __init__(self, source: str, errors: list[str]) -> None:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{source}: {errors[0]}{more}")
        self.errors = [f"{source}: {error}" for error in errors]


ModelT = TypeVar("ModelT", bound=BaseModel)


def load_model(path: Path, model: type[ModelT]) -> ModelT:
    """Read `path` as `model`.

    Raises BadInput with one line (`FILE: key.path: what is wrong`) when the file cannot be read, is
    not YAML, holds a key twice, or does not fit the model (WrongFile).
    """
    return parse_model(read_text(path), model, source=str(path))


def read_text(path: Path) -> str:
    """The text of a file. Raises BadInput (`FILE: what is wrong`) when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise BadInput(f"{path}: {reason}") from None


def parse_model(text: str, model: type[ModelT], source: str) -> ModelT:
    """Read YAML `text` as `model`. Errors (BadInput) call the text by the name `source`."""
    try:
        data = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise BadInput(f"{where}: {error.problem or error}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{source}: {' '.join(str(error).split())}") from None
    if data is None:  # The file is empty, or has comments only.
        data = {}
    if not isinstance(data, dict):
        raise BadInput(f"{source}: must be a mapping of keys, is {type(data).__name__}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise WrongFile(source, list(_errors_in(error))) from None


def all_of(errors: Iterable[str]) -> None:
    """Raise ValueError for all of these errors, if there are any. For validators of a StrictModel.

    An error that comes twice counts once.
    """
    if lines := list(dict.fromkeys(errors)):
        raise ValueError("\n".join(lines))


class _UniqueKeyLoader(yaml.SafeLoader):
    """A SafeLoader that refuses a key that is written twice in one mapping.

    Plain YAML silently keeps the last value.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The mapping of a YAML node; an error for a key that is not plain or is written twice."""
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key: Any = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    problem="a key must be a plain value", problem_mark=key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"duplicate key {key!r}", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def key_path(parts: Iterable[int | str]) -> str:
    """The path of a key, such as `hosts.A.nics[0].name`."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _errors_in(error: ValidationError) -> Iterator[str]:
    """All validation errors, each as `key.path: reason`."""
    for each in error.errors(include_url=False):
        path = key_path(each["loc"])
        message = each["msg"].removeprefix("Value error, ")
        if each["type"] == "extra_forbidden":
            message = "unknown key"
        elif each["type"] == "missing":
            message = "is missing"
        for line in message.splitlines():
            yield f"{path}: {line}" if path else line
