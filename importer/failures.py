"""Errors of an import."""

from __future__ import annotations


class ImportFailed(Exception):
    """An import failed; the message is for users, without credentials or the query of a URL."""


class EndUnknown(ImportFailed):
    """A file of unknown length ended with its connection; checksum or format may prove it complete."""
