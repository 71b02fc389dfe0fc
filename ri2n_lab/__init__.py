# SPDX-License-Identifier: Apache-2.0
"""Clusters on one machine, traffic on them, and the papers' figures beside those of peers.

It uses the product as a user does. Programs begin with `from ri2n_lab.cluster import Lab`, people
with `ri2n lab`, `ri2n bench` and `ri2n demo`.
"""
