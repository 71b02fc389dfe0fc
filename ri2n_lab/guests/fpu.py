# SPDX-License-Identifier: Apache-2.0
"""The size of a process's FPU state on this CPU.

The guests' kernel keeps that state, and must have room for all of it.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from contextlib import suppress

from ri2n_sdn.errors import NotAvailable

__all__ = ["ROOM_BYTES", "host_fpu_bytes"]

ROOM_BYTES = 16384
"""The room that the guests' kernel has: HOST_FP_SIZE of kernel/fpu-state.patch.

AMX, the largest extension so far, makes the state 11,008 bytes. APX adds 128.
"""

PTRACE_ATTACH, PTRACE_DETACH, PTRACE_GETREGSET = 16, 17, 0x4204
NT_X86_XSTATE = 0x202
LARGEST_BYTES = 1 << 20


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def host_fpu_bytes() -> int:
    """The size in bytes of NT_X86_XSTATE of a process on this machine.

    Raises NotAvailable when the kernel does not tell it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    libc.ptrace.restype = ctypes.c_long
    room = ctypes.create_string_buffer(LARGEST_BYTES)
    vector = _Iovec(ctypes.cast(room, ctypes.c_void_p), LARGEST_BYTES)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as looked_at:
        try:
            if libc.ptrace(PTRACE_ATTACH, looked_at.pid, None, None):
                raise NotAvailable(
                    f"the FPU state's size: ptrace: {os.strerror(ctypes.get_errno())}"
                )
            try:
                os.waitpid(looked_at.pid, os.WUNTRACED)
                if libc.ptrace(
                    PTRACE_GETREGSET, looked_at.pid, NT_X86_XSTATE, ctypes.byref(vector)
                ):
                    raise NotAvailable(
                        f"the FPU state's size: ptrace: {os.strerror(ctypes.get_errno())}"
                    )
            finally:
                libc.ptrace(PTRACE_DETACH, looked_at.pid, None, None)
        finally:
            with suppress(OSError):
                looked_at.kill()
    return int(vector.length)
