# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.run.import_all` imports every module of the project, so that it is compiled."""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import suppress

for package in ("ri2n_sdn", "ri2n_lab"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):
                importlib.import_module(module.name)
