from __future__ import annotations

from hypothesis import HealthCheck, settings

# A deadline per example measures the machine's two busy cores, not the code; pytest's timeout stays.
settings.register_profile("unit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
