# SPDX-License-Identifier: Apache-2.0
"""The `ri2n` command."""
