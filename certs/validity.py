"""Start of certificates' validity."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

SKEW: Final = timedelta(minutes=5)
"""Validity before the time of issue, for nodes with slow clocks."""
