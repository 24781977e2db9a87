"""What people read when something fails, in the words that kubectl uses."""

from __future__ import annotations

from apiserver.apis.meta.errors import StatusError


class Failure(Exception):
    """A command failed; the text is what to print, whole."""


def of_status(error: StatusError, doing: str) -> Failure:
    """Return the failure for what a server answered while ``doing`` something: ``open the console of virtual machine default/web``."""
    if error.code == 401:
        return Failure(f"error: You must be logged in to the server ({error.message or error.reason})")
    reason = f" ({error.reason})" if error.reason != "Unknown" else ""
    return Failure(f"Error from server{reason}: {doing}: {error.message}")


def of_transport(error: Exception, server: str, doing: str) -> Failure:
    """Return the failure for a server that did not answer."""
    return Failure(f"Unable to connect to the server {server}: {doing}: {describe(error)}")


def describe(error: BaseException) -> str:
    """Return an exception's text, or its name when it has none."""
    if isinstance(error, TimeoutError):
        return str(error) or "timed out"
    return str(error) or type(error).__name__


def first(error: BaseException) -> BaseException:
    """Return an exception itself, or the first one of a group, however deep."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
