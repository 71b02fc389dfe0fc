"""`cp` and `serve`, of the `ri2n` command or, without it, of `ri2n-parallel`. Needs typer and
rich.
"""
