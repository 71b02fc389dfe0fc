# SPDX-License-Identifier: Apache-2.0
"""Run programs in the lab's namespaces, with time-outs, error texts and batches of commands."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ri2n_sdn.errors import Ri2nError

__all__ = ["CommandFailed", "in_namespace", "in_parallel", "ip_batch", "run"]

DEFAULT_TIMEOUT_S = 60.0


class CommandFailed(Ri2nError):
    """A command in the lab ended with an error or took too long.

    `returncode` is None for one that took too long, and 127 for one that could not be started.
    """

    def __init__(
        self, argv: Sequence[str], returncode: int | None, stdout: str, stderr: str
    ) -> None:
        self.argv = list(argv)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
        reason = " ".join((stderr.strip() or stdout.strip()).split())[-400:]
        status = "took too long" if returncode is None else f"status {returncode}"
        super().__init__(f"{' '.join(argv)[:200]}: {status}{': ' + reason if reason else ''}")


def in_namespace(namespace: str, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` inside `namespace`.

    `ip netns exec` replaces itself, so the process that is started becomes the program.
    """
    return ["ip", "netns", "exec", namespace, *argv]


def run(
    argv: Sequence[str],
    *,
    check: bool = True,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `argv` to its end and return its output as text.

    Raises CommandFailed when it cannot be started or takes longer than `timeout_s`, and, with
    `check`, when its status is not 0.
    """
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=None if env is None else dict(env),
            check=False,
        )
    except OSError as error:
        raise CommandFailed(argv, 127, "", f"{error.strerror}") from None
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(argv, None, _text(error.stdout), _text(error.stderr)) from None
    if check and done.returncode:
        raise CommandFailed(argv, done.returncode, done.stdout, done.stderr)
    return done


def ip_batch(lines: Sequence[str], namespace: str | None = None, program: str = "ip") -> None:
    """Run many `ip` (or `tc`) commands in one process; CommandFailed at the first that fails."""
    if lines:
        where = ["-n", namespace] if namespace else []
        run([program, *where, "-batch", "-"], stdin="\n".join(lines) + "\n")


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def in_parallel(function: Callable[[str], object], names: Iterable[str]) -> None:
    """Call `function` for all names, up to 8 at a time.

    The first error is raised when all calls have ended.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        futures = [pool.submit(function, name) for name in names]
    for future in futures:
        future.result()
