"""The beginning of certificates' validity."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

SKEW: Final = timedelta(minutes=5)
"""A certificate begins so much before it is issued: nodes whose clocks run behind must not refuse it."""
