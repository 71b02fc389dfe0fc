"""The `ri2n-parallel` command: `cp` and `serve` for those who have no `ri2n` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main", "run"]

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


def run(arguments: Sequence[str]) -> int:
    """Run `cp ...` or `serve ...`; the exit code:

    2, with one line, for what a user did wrong, 130 for Ctrl-C.
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
        # Our own errors, and wrong usage: typer ships its own copy of click or uses the installed
        # one, by version.
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
            return EXIT_USER_ERROR
        if not hasattr(error, "format_message"):
            raise
        return _fail(error.format_message())
    return code if isinstance(code, int) else 0


def main() -> None:
    """Entry point."""
    sys.exit(run(sys.argv[1:]))


def _fail(text: str) -> int:
    print("ri2n-parallel: " + " ".join(text.split()), file=sys.stderr)
    return EXIT_USER_ERROR


if __name__ == "__main__":
    main()
