"""Prefix by which an encrypted value is known; apart from the ciphers, so that whoever only looks need not load them."""

from __future__ import annotations

from typing import Final

ENCRYPTED: Final = b"k8s:enc:"
"""Before every value that a provider other than ``identity`` wrote."""
