from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import timedelta

import pytest

from apiserver.apis.meta import flags


def test_values_of_flags_are_read_as_go_writes_them() -> None:
    assert (flags.natural("0"), flags.positive("1")) == (0, 1)
    assert flags.duration("1m30s") == timedelta(seconds=90)
    assert flags.seconds("1m30s") == 90.0


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [(flags.natural, "-1", "-1 is negative"), (flags.positive, "0", "0 is less than 1"), (flags.seconds, "soon", "soon")],
)
def test_invalid_values_are_reported_as_argparse_expects(read: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        read(text)
