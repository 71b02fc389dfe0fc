"""A guest runs one command on another kernel, changes nothing here, and ends whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.lab.guest import Guest
from ri2n_sdn.lab.kernels import Kernel, find_kernel

WaitUntil = Callable[..., None]


@pytest.fixture(scope="module")
def uml() -> Kernel:
    try:
        return find_kernel("uml")
    except NotAvailable as error:
        pytest.skip(str(error))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where guests keep their files; must be empty afterwards, and nobody at work in it."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    assert processes_naming(tmp_path) == []


def processes_naming(folder: Path) -> list[int]:
    """Processes with this folder in their command line: a guest and all that runs in it."""
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
    script = f"uname -r; touch {here} && cat <(ls {here}); echo kept > {writable}/kept; ovs-dpctl show"
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


def test_a_guest_that_hangs_is_ended_at_its_limit(uml: Kernel, folder: Path, wait_until: WaitUntil) -> None:
    """Not even its kernel runs any more."""
    with Guest(uml, ["sleep", "1000"], limit_s=3, folder=folder) as guest:
        wait_until(lambda: len(processes_naming(folder)) >= 2, "the guest's kernel is there")
        for pid in processes_naming(folder):
            if pid != guest.pid:
                os.kill(pid, signal.SIGSTOP)
        with pytest.raises(NotAvailable, match="ended at its limit"):
            guest.wait()
        wait_until(lambda: processes_naming(folder) == [], lambda: f"still there: {processes_naming(folder)}")


def test_a_guest_that_dies_is_told(uml: Kernel, folder: Path) -> None:
    with Guest(uml, ["sleep", "1000"], limit_s=100, folder=folder) as guest:
        os.kill(guest.pid, signal.SIGKILL)
        with pytest.raises(NotAvailable, match="the guest died"):
            guest.wait()


def test_a_kernel_that_is_none_is_told(folder: Path) -> None:
    with (
        Guest(Kernel("none", Path("/bin/false"), virtual=False), ["true"], limit_s=30, folder=folder) as guest,
        pytest.raises(NotAvailable, match="the guest died"),
    ):
        guest.wait()


def test_a_guest_dies_with_who_started_it(uml: Kernel, tmp_path: Path, wait_until: WaitUntil) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom ri2n_sdn.lab.guest import Guest\n"
        "from ri2n_sdn.lab.kernels import find_kernel\n"
        "guest = Guest(find_kernel('uml'), ['sleep', '1000'], limit_s=100, folder=Path(sys.argv[1]))\n"
        "print('started', flush=True)\nguest.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "started\n"
    wait_until(lambda: len(processes_naming(tmp_path)) >= 3, "the guest is there")
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: processes_naming(tmp_path) == [], lambda: f"still there: {processes_naming(tmp_path)}")


def test_bad_settings_make_no_guest(uml: Kernel, folder: Path) -> None:
    with pytest.raises(BadInput, match="seed 0"):
        Guest(uml, ["true"], limit_s=10, seed=0, folder=folder)
    with pytest.raises(BadInput, match="kernel 'vax'"):
        find_kernel("vax")
