# SPDX-License-Identifier: Apache-2.0
"""Labs on another kernel: user-mode Linux as a guest of this machine, in real or virtual time."""
