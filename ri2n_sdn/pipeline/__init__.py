# SPDX-License-Identifier: Apache-2.0
"""The fabric and its weights as OpenFlow tables and groups, and how to get there. All pure data."""
