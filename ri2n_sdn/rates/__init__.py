# SPDX-License-Identifier: Apache-2.0
"""Max-min fair rates, and the load that rates over paths put on links. All pure."""
