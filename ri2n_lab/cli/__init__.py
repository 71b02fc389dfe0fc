# SPDX-License-Identifier: Apache-2.0
"""The commands `ri2n lab`, `ri2n bench` and `ri2n demo`, and answers about labs.

The answers are for the product's commands (`ri2n_sdn.cli.labs`).
"""
