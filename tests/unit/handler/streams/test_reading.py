from __future__ import annotations

from contextlib import ExitStack

import pytest

from apiserver.apis.meta import errors
from handler.streams import reading
from handler.streams.reading import Reading, Waiting


def test_few_may_wait_for_a_machine_and_not_many_for_all() -> None:
    waiting = Waiting()
    machines = reading.MAX_WAITING // reading.MAX_WAITING_PER_MACHINE
    with ExitStack() as stack:
        for machine in range(machines):
            for _ in range(reading.MAX_WAITING_PER_MACHINE):
                stack.enter_context(waiting.one(str(machine), "song"))
            with pytest.raises(errors.TooManyRequests):
                stack.enter_context(waiting.one(str(machine), "song"))
        with pytest.raises(errors.TooManyRequests) as refused:
            stack.enter_context(waiting.one("another", "song"))
        assert refused.value.details.retry_after_seconds == reading.RETRY_SECONDS
    with waiting.one("another", "song"):
        pass
    assert not waiting._waiting


async def test_the_place_of_a_reader_that_fails_is_given_back() -> None:
    async def ask(pod_uid: str, what: str) -> str:
        raise errors.Timeout(f"{what} of {pod_uid}")

    waiting = Waiting()
    with pytest.raises(errors.Timeout):
        await reading.read(Reading(ask, {}), waiting, "pod", "vm", "song")
    assert not waiting._waiting


async def test_errors_do_not_quote_the_launcher() -> None:
    async def ask(pod_uid: str, what: str) -> str:
        return "sesame"

    def check(text: str) -> dict[str, object]:
        raise ValueError(f"not {text}")

    with pytest.raises(errors.ServiceUnavailable) as refused:
        await reading.read(Reading(ask, {"song": check}), Waiting(), "pod", "vm", "song")
    assert refused.value.message == "its virt-launcher returned invalid song: ValueError"
