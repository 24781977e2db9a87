from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName
from handler.streams.limits import Limits, OpenStreams, Wanted

CONSOLE = Wanted(NamespacedName("default", "testvm"), "u-1", "console", "alice")
DISPLAY = Wanted(NamespacedName("default", "testvm"), "u-1", "vnc", "alice")
BOBS = Wanted(NamespacedName("default", "testvm"), "u-1", "console", "bob")
UNSAID = Wanted(NamespacedName("default", "testvm"), "u-1", "console", "")
ANOTHER = Wanted(NamespacedName("default", "another"), "u-2", "console", "alice")


def opened(limits: Limits, *wanted: Wanted) -> int:
    streams = OpenStreams(limits)
    with contextlib.ExitStack() as stack:
        for position, each in enumerate(wanted):
            try:
                stack.enter_context(streams.one(each))
            except errors.TooManyRequests:
                return position
    assert len(streams) == 0
    return len(wanted)


@pytest.mark.parametrize(
    ("limits", "wanted", "let_in"),
    [
        (Limits(0, 0, 0), [CONSOLE] * 300, 300),
        (Limits(3, 0, 0), [CONSOLE, BOBS, ANOTHER, ANOTHER], 3),
        (Limits(0, 2, 0), [CONSOLE, BOBS, UNSAID], 2),
        (Limits(0, 2, 0), [CONSOLE, BOBS, DISPLAY, DISPLAY, ANOTHER, DISPLAY], 5),
        (Limits(0, 0, 2), [CONSOLE, CONSOLE, BOBS, BOBS, ANOTHER, DISPLAY, CONSOLE], 6),
        (Limits(0, 0, 2), [UNSAID] * 9, 9),
    ],
    ids=["no limits", "of the node", "of a machine", "displays apart from consoles", "of a user", "of nobody"],
)
def test_each_limit_counts_its_own_streams_and_no_others(limits: Limits, wanted: list[Wanted], let_in: int) -> None:
    assert opened(limits, *wanted) == let_in


def test_share_raises_the_limits_of_a_machine_not_of_the_node() -> None:
    ports = [replace(each, stream="portforward", share=2) for each in (CONSOLE, CONSOLE, BOBS, BOBS, UNSAID)]
    assert opened(Limits(0, 2, 0), *ports) == 4
    assert opened(Limits(0, 0, 1), *ports[:2], *ports[:2]) == 2
    assert opened(Limits(3, 0, 0), *ports) == 3


def test_closed_stream_frees_its_place() -> None:
    streams = OpenStreams(Limits(1, 1, 1))
    for each in (CONSOLE, DISPLAY, BOBS, ANOTHER):
        with streams.one(each):
            assert len(streams) == 1
            with pytest.raises(errors.TooManyRequests), streams.one(each):
                pass
    assert (len(streams), dict(streams._open)) == (0, {})
