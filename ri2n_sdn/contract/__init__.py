# SPDX-License-Identifier: Apache-2.0
"""The contract: what processes say to each other, with one owner for each fact. Pure."""
