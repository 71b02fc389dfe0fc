"""Every error that a user can cause or cure, under one base class:

one clear line, never a traceback.
"""

__all__ = ["BadInput", "NotAvailable", "Ri2nError"]


class Ri2nError(Exception):
    """Base of all errors shown to a user as one line; the CLI exits with 2, REST maps it to 4xx."""


class BadInput(Ri2nError):
    """A file, key or argument is wrong; the text names it (`FILE: path.of.key: what is wrong`)."""


class NotAvailable(Ri2nError):
    """Something the work needs is missing (root, a program, a port, a controller).

    The text says what to do.
    """
