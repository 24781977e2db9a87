from __future__ import annotations

from hypothesis import HealthCheck, settings

# A deadline per example would measure the busy machine; pytest's timeout stays.
settings.register_profile("unit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
