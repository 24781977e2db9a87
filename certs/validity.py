"""When certificates begin."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

SKEW: Final = timedelta(minutes=5)
"""How much earlier than it is issued a certificate begins: nodes whose clocks run behind must not refuse it."""
