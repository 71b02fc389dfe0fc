# SPDX-License-Identifier: Apache-2.0
"""The tables of the papers, measured with real traffic."""
