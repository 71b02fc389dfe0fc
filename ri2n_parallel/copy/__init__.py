# SPDX-License-Identifier: Apache-2.0
"""Copies of files over several links at once; docs/parallel-copy.md has the protocol.

messages, names and blocks are pure. folder is the disk, channel the connection, transfer moves one
file at either end, server and client are the two ends, and jobs is what `ri2n cp` does.
"""

from ri2n_parallel.copy.client import Session
from ri2n_parallel.copy.folder import Folder, current_umask
from ri2n_parallel.copy.jobs import Summary, Watch, download, upload
from ri2n_parallel.copy.messages import ProtocolViolation, Refused
from ri2n_parallel.copy.names import DEFAULT_PORT, Remote, parse_remote
from ri2n_parallel.copy.server import Server

__all__ = [
    "DEFAULT_PORT",
    "Folder",
    "ProtocolViolation",
    "Refused",
    "Remote",
    "Server",
    "Session",
    "Summary",
    "Watch",
    "current_umask",
    "download",
    "parse_remote",
    "upload",
]
