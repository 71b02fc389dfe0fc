# SPDX-License-Identifier: Apache-2.0
"""What our changes to the guests' kernel must not change.

That is clocks, registers, memory and signals of programs.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ri2n_lab.guests.guest import Guest
from ri2n_lab.guests.kernels import Kernel

READING_NS = 256  # what reading the virtual clock costs


@pytest.fixture(params=[True, False], ids=["virtual time", "real time"])
def kernel(virtual: Kernel, request: pytest.FixtureRequest) -> Kernel:
    return replace(virtual, virtual=request.param)


def said(kernel: Kernel, program: str, tmp_path: Path) -> object:
    """What a Python program prints in a guest, as JSON."""
    with Guest(kernel, [sys.executable, "-c", program], limit_s=600, folder=tmp_path) as guest:
        result = guest.wait()
        assert result.returncode == 0, guest.stderr
        return json.loads(guest.stdout)


CLOCKS = """
import ctypes, json, time
libc = ctypes.CDLL(None)
now = (ctypes.c_int64 * 2)()
def asked(clock):  # the kernel, past what programs read by themselves
    libc.syscall(228, clock, now)
    return now[0] * 1_000_000_000 + now[1]
offset = time.time_ns() - time.monotonic_ns() + 256  # the second was read later
read = []
for _ in range(500):
    read += [time.monotonic_ns(), asked(1), time.monotonic_ns()]
    read += [time.time_ns() - offset, asked(0) - offset]
print(json.dumps(read))
"""


def test_a_program_and_the_kernel_read_one_clock(virtual: Kernel, tmp_path: Path) -> None:
    """Each reading costs the same for everybody; only a tick of the kernel may come between."""
    read = said(virtual, CLOCKS, tmp_path)
    assert isinstance(read, list)
    steps = [after - before for before, after in pairwise(read)]
    assert min(steps) == READING_NS and steps.count(READING_NS) > 0.9 * len(steps)


ALARMS = """
import json, signal, time
heard = []
signal.signal(signal.SIGALRM, lambda *_: heard.append(time.monotonic_ns()))
late = []
time.sleep(0.1)  # until timers are exact, which they are not from the first
for _ in range(20):
    del heard[:]
    began = time.monotonic_ns()
    signal.setitimer(signal.ITIMER_REAL, 0.003)
    while not heard:
        time.monotonic_ns()
    late.append(heard[0] - began - 3_000_000)
print(json.dumps(late))
"""


def test_a_program_that_reads_the_clock_again_and_again_hears_its_alarm(
    kernel: Kernel, tmp_path: Path
) -> None:
    late = said(kernel, ALARMS, tmp_path)
    assert isinstance(late, list) and min(late) >= 0
    if kernel.virtual:
        assert max(late) < 20_000


# SHA-512 is computed with vector registers, by threads of several processes that signals interrupt.
HASHES = """
import hashlib, json, os, signal, threading
data = bytes(range(256)) * 40_000
right = hashlib.sha512(data).hexdigest()
ticks = []
signal.signal(signal.SIGALRM, lambda *_: ticks.append(hashlib.sha512(bytes(500)).digest()))
wrong = 0
children = []
for _ in range(3):
    if not (pid := os.fork()):
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        bad = []
        def work():
            bad.extend(1 for _ in range(4) if hashlib.sha512(data).hexdigest() != right)
        threads = [threading.Thread(target=work) for _ in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        os._exit(bool(bad))
    children.append(pid)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]))
"""


def test_programs_keep_their_registers(kernel: Kernel, tmp_path: Path) -> None:
    assert said(kernel, HASHES, tmp_path) == [0, 0, 0]


MEMORY = """
import ctypes, json, mmap, os, random
draw = random.Random(1)
libc = ctypes.CDLL(None, use_errno=True)
PAGE = 4096
areas = [mmap.mmap(-1, 64 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(200)]
right = {}
def write(number):
    for _ in range(number):
        area, page = draw.randrange(len(areas)), draw.randrange(64)
        right[area, page] = value = draw.randbytes(8)
        areas[area][page * PAGE : page * PAGE + 8] = value
def wrong():
    return sum(
        areas[area][page * PAGE : page * PAGE + 8] != value
        for (area, page), value in right.items())
write(3000)
results = []
for _ in range(5):
    if not (pid := os.fork()):
        before = wrong()
        write(1000)  # seen by nobody else
        os._exit(min(before + wrong(), 100))
    write(300)
    results += [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), wrong()]
# Pages that are protected, freed and taken again.
for area in areas[:50]:
    area.madvise(mmap.MADV_DONTNEED)
results.append(sum(area[:] != bytes(64 * PAGE) for area in areas[:50]))
for how, signal in (("read only", 11), ("nothing there", 11)):
    if not (pid := os.fork()):
        if how == "read only":
            at = ctypes.addressof(ctypes.c_char.from_buffer(areas[100]))
            libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(PAGE), mmap.PROT_READ)
            ctypes.memset(at, 1, 1)
        ctypes.string_at(16)
        os._exit(0)
    results.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) + signal)
print(json.dumps(results))
"""


def test_programs_have_their_own_memory(kernel: Kernel, tmp_path: Path) -> None:
    results = said(kernel, MEMORY, tmp_path)
    assert isinstance(results, list) and results == [0] * 13
