# SPDX-License-Identifier: Apache-2.0
"""Importing this imports every command, for processes that run many commands in forks."""

from __future__ import annotations

from ri2n_sdn.cli.main import loaded_tree

loaded_tree()
