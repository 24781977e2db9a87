"""Errors of an import."""

from __future__ import annotations


class ImportFailed(Exception):
    """The import failed; the message is for users, and contains no credentials and no query of a URL."""


class EndUnknown(ImportFailed):
    """A file without length ended with its connection; checksum or format may prove that it is complete."""
