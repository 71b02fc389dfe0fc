# SPDX-License-Identifier: Apache-2.0
"""What host scripts, which run as root, believe: files, folders, and other users' programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .commands import REPOSITORY

SCRIPTS = REPOSITORY / "ovs-host-scripts"


class Script:
    """Runs lines of bash in place of the last line of a script of ours, which starts it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in SCRIPTS.glob("*.sh"):
            (folder / path.name).symlink_to(path)

    def run(self, name: str, lines: str, **env: str) -> subprocess.CompletedProcess[str]:
        text, last, _ = (SCRIPTS / name).read_text().rpartition('main "$@"\n')
        assert last
        script = self.folder / name
        script.write_text(text + lines)
        return subprocess.run(
            ["bash", str(script)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", **env},
            check=False,
        )


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def refused(done: subprocess.CompletedProcess[str], words: str) -> None:
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and words in done.stderr, done


@pytest.mark.parametrize(
    ("is_like", "words"),
    [
        ("0 700", None),
        ("20001 700", "belongs to another user"),
        ("0 755", "others may enter it"),
        ("0 2770", "others may enter it"),
    ],
)
def test_a_folder_of_somebody_else_says_nothing_of_what_was_before(
    script: Script, is_like: str, words: str | None
) -> None:
    """Whoever owns the saved state says which addresses and routes root gives back."""
    (script.folder / "state").mkdir()
    lines = f"stat() {{ echo {is_like}; }}\nSTATE_ROOT=$PWD/state\nown_state_root\necho kept\n"
    done = script.run("host-up", lines)
    if words is None:
        assert done.stdout == "kept\n", done
    else:
        refused(done, words)


def test_a_folder_is_made_for_root_alone(script: Script) -> None:
    lines = "umask 0\nstat() { command stat \"$@\" | sed 's/^[0-9]*/0/'; }\n"
    done = script.run("host-up", f"{lines}STATE_ROOT=$PWD/a/b\nown_state_root\n")
    assert done.returncode == 0, done
    assert (script.folder / "a/b").stat().st_mode & 0o777 == 0o700
    (script.folder / "file").write_text("")
    refused(script.run("host-up", "STATE_ROOT=$PWD/file\nown_state_root\n"), "cannot be made")
    refused(script.run("host-up", "STATE_ROOT=state\ncheck_bridge_name\n"), "--state-dir state:")


def test_files_for_open_vswitch_have_names_that_it_understands(script: Script) -> None:
    for name in ("key", "cert", "ca", "two words", "it's"):
        (script.folder / name).write_text("")
    (script.folder / "folder").mkdir()
    options = "--nic eth0 --name A --ssl-cert cert --ssl-ca $PWD/ca --ssl-key"
    lines = f"parse {options} key\ncheck_arguments\necho $SSL_KEY $SSL_CERT $SSL_CA\n"
    done = script.run("host-up", lines)
    # Its own folder is another one.
    names = [str(script.folder / name) for name in ("key", "cert", "ca")]
    assert done.stdout == " ".join(names) + "\n", done
    for name, words in {
        **{"none": "none: cannot be read", "folder": "folder: cannot be read"},
        **{"two words": "without spaces", "it's": "without spaces"},
    }.items():
        refused(script.run("host-up", f'parse {options} "{name}"\ncheck_arguments\n'), words)


def test_a_folder_is_no_file_of_options(script: Script) -> None:
    refused(script.run("host-up", "parse --config .\n"), "--config .: cannot be read")


@pytest.mark.parametrize("name", ["host-up", "host-down"])
def test_nothing_of_the_environment_is_taken_for_our_own(script: Script, name: str) -> None:
    """Bash carries out what stands in an index, wherever it reckons with a variable."""
    hostile = "x[$(touch pwned)]"
    names = ("CHANGES", "WATCHER", "WIRE_MTU", "LEFT", "NO_WAIT", "HAVE_BRIDGE", "DRY_RUN")
    lines = "run true\n[[ $CHANGES == 1 && -z $WATCHER ]]\n"
    if name == "host-up":
        lines += "[[ -z $WIRE_MTU ]]\n"
    done = script.run(name, lines, **dict.fromkeys(names, hostile))
    assert done.returncode == 0, done
    assert not (script.folder / "pwned").exists()


def test_what_another_user_calls_a_program_changes_no_terminal(script: Script) -> None:
    """host-up --dry-run lists programs that name a NIC, between lines that somebody may copy."""
    lines = (
        "mentions_of() { printf 'process 7: eth0 \\033[2K\\rrm -rf /\\n'; }\nlist_mentions eth0\n"
    )
    done = script.run("host-up", lines)
    assert done.returncode == 0 and "\x1b" not in done.stdout and "\r" not in done.stdout
    assert done.stdout.splitlines()[-1] == r"#   process 7: eth0 \x1b[2K\x0drm -rf /"


def test_a_program_that_ends_while_it_is_read_keeps_nobody(script: Script) -> None:
    """Then bash's `read` fails and leaves its variable as it was, here after the first word."""
    lines = (
        "asked=0\n"
        "read() { asked=$((asked + 1)); ((asked < 100000)) || exit 7; "
        "((asked % 2)) && part=dhclient; }\n"
        "mentions_in_processes eth0\n"
    )
    done = script.run("host-up", lines)
    assert (done.returncode, done.stdout) == (0, ""), done


def test_metrics_go_to_a_file_with_any_name(tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPTS / "host-metrics", "--output", "-r/x", "--state-dir", "/nowhere"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    refused(done, "--output -r/x: there is no such folder")
