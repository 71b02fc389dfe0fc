# SPDX-License-Identifier: Apache-2.0
"""`./dev test`: run the tiers, in guests where they need another kernel, and count the results."""
