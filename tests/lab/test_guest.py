# SPDX-License-Identifier: Apache-2.0
"""A guest runs one command on another kernel, changes nothing here, and always ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ri2n_lab.guests.guest import Guest, _memory_folder, _waited_s
from ri2n_lab.guests.kernels import Kernel, find_kernel
from ri2n_sdn.errors import BadInput, NotAvailable

from .conftest import WaitUntil


@pytest.fixture(scope="module")
def uml() -> Kernel:
    try:
        return find_kernel("uml")
    except NotAvailable as error:
        pytest.skip(str(error))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder in which guests keep their files; afterwards it must be empty and unused."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    assert processes_naming(tmp_path) == []


def processes_naming(folder: Path) -> list[int]:
    """The processes whose command line names this folder: a guest, and all that runs in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in line:
                found.append(int(entry.name))
    return found


def test_a_command_runs_on_the_other_kernel_and_changes_nothing_here(
    uml: Kernel, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    writable = tmp_path_factory.mktemp("writable")
    here = Path("/etc/ri2n-guest-was-here")
    script = (
        f"uname -r; touch {here} && cat <(ls {here}); echo kept > {writable}/kept; ovs-dpctl show"
    )
    script += "; echo bad >&2; exit 7"
    with Guest(uml, ["bash", "-c", script], limit_s=200, folder=folder, writable=writable) as guest:
        result = guest.wait()
        assert result.returncode == 7
        release, made = guest.stdout.split()[:2]
        assert release != os.uname().release and "bad" in guest.stderr
        assert made == str(here)
    assert not here.exists()
    assert (writable / "kept").read_text() == "kept\n"


def test_a_guest_is_ended_at_its_limit(uml: Kernel, folder: Path) -> None:
    with Guest(uml, ["sleep", "1000"], limit_s=2, folder=folder) as guest:
        with pytest.raises(NotAvailable, match="ended at its limit of 2 s"):
            guest.wait()
        assert processes_naming(folder) == []


def test_a_guest_that_hangs_is_ended_at_its_limit(
    uml: Kernel, folder: Path, wait_until: WaitUntil
) -> None:
    """Not even the guest's kernel runs any more."""
    with Guest(uml, ["sleep", "1000"], limit_s=600, folder=folder) as guest:
        wait_until(lambda: len(processes_naming(folder)) >= 2, "the guest's kernel is there")
        for pid in processes_naming(folder):
            if pid != guest.pid:
                os.kill(pid, signal.SIGSTOP)
        guest.limit_s = 3  # only now, because a busy machine may need longer to start the kernel
        with pytest.raises(NotAvailable, match="ended at its limit"):
            guest.wait()
        wait_until(
            lambda: processes_naming(folder) == [],
            lambda: f"still there: {processes_naming(folder)}",
        )


def test_a_guest_that_dies_is_told(uml: Kernel, folder: Path, wait_until: WaitUntil) -> None:
    with Guest(uml, ["sleep", "1000"], limit_s=600, folder=folder) as guest:
        wait_until((guest.share / "booted").exists, "the guest has booted", timeout_s=300)
        os.kill(guest.pid, signal.SIGKILL)
        with pytest.raises(NotAvailable, match="the guest died"):
            guest.wait()


def test_a_kernel_that_is_none_is_told(folder: Path) -> None:
    with (
        Guest(
            Kernel("none", Path("/bin/false"), virtual=False), ["true"], limit_s=30, folder=folder
        ) as guest,
        pytest.raises(NotAvailable, match="cannot boot, its kernel ended"),
    ):
        guest.wait()


@pytest.mark.parametrize("virtual", [False, True])
def test_a_kernel_that_panics_is_told_at_once_with_its_last_words(
    uml: Kernel, folder: Path, virtual: bool
) -> None:
    kernel = replace(uml, virtual=virtual)
    with (
        Guest(kernel, ["true"], limit_s=600, folder=folder, options=["init=/nonexistent"]) as guest,
        pytest.raises(NotAvailable, match=r"cannot boot.*Kernel panic.*/nonexistent"),
    ):
        guest.wait()
    assert processes_naming(folder) == []


def fake_kernel(path: Path, script: str) -> Kernel:
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return Kernel("fake", path, virtual=False)


def test_a_kernel_that_panics_and_does_not_end_is_ended(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = "Kernel panic - not syncing: ptrace set fp regs failed, errno = 14"
    kernel = fake_kernel(
        tmp_path_factory.mktemp("kernel") / "k", f"echo '{words}'; exec sleep 1000"
    )
    with (
        Guest(kernel, ["true"], limit_s=600, folder=folder) as guest,
        pytest.raises(NotAvailable, match=f"cannot boot, it was ended.*{words}"),
    ):
        guest.wait()


def test_a_kernel_that_never_starts_its_first_process_is_ended(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fake_kernel(
        tmp_path_factory.mktemp("kernel") / "k", "echo that is all I have to say; exec sleep 1000"
    )
    monkeypatch.setattr("ri2n_lab.guests.guest.BOOT_S", 1.0)
    with (
        Guest(kernel, ["true"], limit_s=600, folder=folder) as guest,
        pytest.raises(NotAvailable, match=r"cannot boot, it was ended.*that is all I have to say"),
    ):
        guest.wait()


def test_a_kernel_that_waits_for_a_cpu_is_not_given_up(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All the time that it did not run, it was ready to run: it is late, and not dead."""
    kernel = fake_kernel(
        tmp_path_factory.mktemp("kernel") / "k",
        'for i in {1..300000}; do :; done; share=$(tr " " "\\n" <<<"$*" | sed -n '
        "s/RI2N_SHARE=//p)\n"
        'echo 0 1 2 >"$share/result"',
    )
    monkeypatch.setattr("ri2n_lab.guests.guest._waited_s", lambda pid: 1e9)
    monkeypatch.setattr("ri2n_lab.guests.guest.BOOT_S", 0.1)
    with Guest(kernel, ["true"], limit_s=600, folder=folder) as guest:
        assert guest.wait().returncode == 0


def test_time_without_a_cpu_is_counted_over_all_that_a_process_started() -> None:
    """Four shells that count on one CPU wait for each other, the longer the more."""
    count = "while :; do :; done"
    argv = [
        "taskset",
        "-c",
        str(min(os.sched_getaffinity(0))),
        "bash",
        "-c",
        f"{count} & {count} & {count} & {count}",
    ]
    with subprocess.Popen(argv, start_new_session=True) as shells:
        try:
            deadline_s = time.monotonic() + 120
            while (waited_s := _waited_s(shells.pid)) < 2 and time.monotonic() < deadline_s:
                time.sleep(0.1)
        finally:
            os.killpg(shells.pid, signal.SIGKILL)
    assert waited_s >= 2
    assert _waited_s(shells.pid) == 0  # they have ended


def test_a_guest_dies_with_who_started_it(
    uml: Kernel, tmp_path: Path, wait_until: WaitUntil
) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom ri2n_lab.guests.guest import Guest\n"
        "from ri2n_lab.guests.kernels import find_kernel\n"
        "guest = Guest(find_kernel('uml'), ['sleep', '1000'], limit_s=100, "
        "folder=Path(sys.argv[1]))\n"
        "print('started', flush=True)\nguest.wait()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None and parent.stdout.readline() == "started\n"
    wait_until(lambda: len(processes_naming(tmp_path)) >= 3, "the guest is there")
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(
        lambda: processes_naming(tmp_path) == [],
        lambda: f"still there: {processes_naming(tmp_path)}",
    )


def test_bad_settings_make_no_guest(uml: Kernel, folder: Path) -> None:
    with pytest.raises(BadInput, match="seed 0"):
        Guest(uml, ["true"], limit_s=10, seed=0, folder=folder)
    with pytest.raises(BadInput, match="kernel 'vax'"):
        find_kernel("vax")


@pytest.mark.parametrize(
    "command",
    [
        ("lab", "up", "fig4/b", "--kernel", "uml"),
        ("lab", "run", "--kernel", "virtual", "--", "true"),
        ("doctor", "--kernel", "uml"),
    ],
    ids=["up", "run", "doctor"],
)
def test_commands_say_why_no_guest_boots(
    command: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "Kernel panic - not syncing: all is lost"
    image = fake_kernel(
        tmp_path_factory.mktemp("kernel") / "k", f"echo '{words}'; exec sleep 1000"
    ).image
    monkeypatch.setenv("RI2N_GUEST_KERNEL", str(image))
    monkeypatch.setenv("COLUMNS", "400")
    done = subprocess.run(
        [sys.executable, "-m", "ri2n_sdn.cli.main", *command],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 2
    assert (
        "the guest cannot boot" in done.stdout + done.stderr and words in done.stdout + done.stderr
    )
    assert "Traceback" not in done.stderr
    assert processes_naming(image) == []


def test_memory_of_a_guest_lies_where_there_is_room_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A container's /dev/shm may have 64 MB."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    real = os.statvfs(tmp_path)
    for megabytes, found in ((64, str(tmp_path)), (4096, "/dev/shm")):
        room = os.statvfs_result([real.f_bsize, 4096, *[megabytes << 8] * 3, *tuple(real)[5:10]])
        monkeypatch.setattr(os, "statvfs", lambda path, room=room: room)
        assert _memory_folder() == found
    assert _memory_folder("/nowhere") == str(tmp_path)


def test_a_guest_leaves_cpu_to_others_when_told(
    uml: Kernel, folder: Path, wait_until: WaitUntil
) -> None:
    """All its processes leave CPU to others, also those that it has later.

    So does its session, where Linux gives sessions a weight.
    """
    with Guest(uml, ["sleep", "1000"], limit_s=200, folder=folder) as guest:
        wait_until(lambda: guest.renice(19), "its kernel does not start", 100)
        (kernel,) = Path(f"/proc/{guest.pid}/task/{guest.pid}/children").read_text().split()

        def processes() -> list[str]:
            listed = subprocess.run(
                ["ps", "-o", "ni=", "--sid", kernel], capture_output=True, text=True, check=False
            )
            return listed.stdout.split()

        wait_until(lambda: len(processes()) > 3, lambda: f"it has {processes()}", 100)
        assert set(processes()) == {"19"}
        if (weight := Path(f"/proc/{kernel}/autogroup")).exists():
            assert weight.read_text().endswith("nice 19\n")
        assert guest.renice(0) and set(processes()) == {"0"}
