"""Prefix of encrypted values, separate from the ciphers to avoid loading them."""

from __future__ import annotations

from typing import Final

ENCRYPTED: Final = b"k8s:enc:"
