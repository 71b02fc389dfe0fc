# SPDX-License-Identifier: Apache-2.0
"""The commands `cp` and `serve`, of `ri2n` or, without it, of `ri2n-parallel`.

They need typer and rich.
"""
