# SPDX-License-Identifier: Apache-2.0
"""The cluster's memory: what must survive a restart of the controller, in OVSDB."""
