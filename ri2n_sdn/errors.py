"""The errors that a user can cause or cure. A user sees one clear line, never a traceback."""

__all__ = ["BadInput", "NotAvailable", "Ri2nError"]


class Ri2nError(Exception):
    """The base of all errors that are shown to a user as one line.

    The command line exits with 2, and REST answers with a status of 4xx.
    """


class BadInput(Ri2nError):
    """A file, key or argument is wrong. The text names it: `FILE: path.of.key: what is wrong`."""


class NotAvailable(Ri2nError):
    """Something that is needed is missing: root, a program, a port, a controller.

    The text says what to do.
    """
