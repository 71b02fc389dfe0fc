# SPDX-License-Identifier: Apache-2.0
"""The `ri2n-parallel` command: `cp` and `serve` where there is no `ri2n` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main", "run"]

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


def run(arguments: Sequence[str]) -> int:
    """Run `cp ...` or `serve ...`, and return the exit code.

    It is 2, with one line on stderr, for what a user did wrong, and 130 for Ctrl-C.
    """
    try:
        import typer

        from ri2n_parallel.cli.commands import cp, serve
    except ImportError as error:
        return _fail(f"{error.name} is missing: pip install 'ri2n-parallel[cli]'")
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Files over several links at once, for users who may not touch the network.",
    )
    for command in (cp, serve):
        app.command()(command)
    try:
        code = app(list(arguments), prog_name="ri2n-parallel", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as error:
        # These are our own errors, and those of click for wrong usage. They are known by their
        # names: by its version, typer has a copy of click or uses the installed one.
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
            return EXIT_USER_ERROR
        if not hasattr(error, "format_message"):
            raise
        return _fail(error.format_message())
    return code if isinstance(code, int) else 0


def main() -> None:
    """Run the command with the arguments of the process; the entry point."""
    sys.exit(run(sys.argv[1:]))


def _fail(text: str) -> int:
    print("ri2n-parallel: " + " ".join(text.split()), file=sys.stderr)
    return EXIT_USER_ERROR


if __name__ == "__main__":
    main()
