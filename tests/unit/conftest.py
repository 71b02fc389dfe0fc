# SPDX-License-Identifier: Apache-2.0
"""For the unit tier: hypothesis measures no time, since a machine may be busy."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("any-machine")
