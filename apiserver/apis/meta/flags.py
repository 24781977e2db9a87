"""Values of command-line flags, read as argparse wants it: what cannot be one is an ArgumentTypeError, which is printed behind the flag."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from apiserver.apis.meta import times

_T = TypeVar("_T")


def checked(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """Return a reader of flags that says what ``read`` raises as a ValueError."""

    def reading(text: str) -> _T:
        try:
            return read(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from error

    return reading


def natural(text: str) -> int:
    """Return a whole number that is not negative."""
    number = int(text)
    if number < 0:
        raise ArgumentTypeError(f"{text} is negative")
    return number


def positive(text: str) -> int:
    """Return a whole number above 0."""
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"{text} is less than 1")
    return number


def duration(text: str) -> timedelta:
    """Return a duration as Go writes it (``1m30s``)."""
    try:
        return times.parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def seconds(text: str) -> float:
    """Return the seconds of a duration as Go writes it."""
    return duration(text).total_seconds()
