# SPDX-License-Identifier: Apache-2.0
"""What the product does, written down: compared and renewed by `./dev baseline`."""
