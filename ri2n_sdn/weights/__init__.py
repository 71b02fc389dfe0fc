# SPDX-License-Identifier: Apache-2.0
"""Weight strategies (one file each, one signature), and slot tables made from weights. All pure."""
