"""The failure of an import."""

from __future__ import annotations


class ImportFailed(Exception):
    """An import that cannot be finished; the message says why, for people, and holds no credentials and no query of a URL."""


class EndUnknown(ImportFailed):
    """A file that came without a length and ended with its connection: its checksum or its format may prove that it is whole."""
