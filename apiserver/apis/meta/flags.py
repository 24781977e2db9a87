"""Parses values of flags for argparse, which prints an ArgumentTypeError after the flag."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from apiserver.apis.meta import times

_T = TypeVar("_T")


def checked(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """Return ``read`` as an argparse type that shows users the message of its ValueError."""

    def reading(text: str) -> _T:
        try:
            return read(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from error

    return reading


def natural(text: str) -> int:
    """Parse a non-negative integer for argparse. Raises ValueError or ArgumentTypeError."""
    number = int(text)
    if number < 0:
        raise ArgumentTypeError(f"{text} is negative")
    return number


def positive(text: str) -> int:
    """Parse a positive integer for argparse. Raises ArgumentTypeError below 1, ValueError for other text."""
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"{text} is less than 1")
    return number


def duration(text: str) -> timedelta:
    """Parse a Go duration (``1m30s``), perhaps negative, into a timedelta. Raises ArgumentTypeError."""
    try:
        return times.parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def seconds(text: str) -> float:
    """Parse a Go duration, and return seconds. Raises ArgumentTypeError."""
    return duration(text).total_seconds()
