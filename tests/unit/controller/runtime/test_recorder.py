from __future__ import annotations

from typing import cast

from apiserver.apis.core.resources import PODS
from apiserver.client.rest import Client
from controller.runtime.clock import SystemClock
from controller.runtime.recorder import BURST, MAX_WAITING, SIMILAR, Correlator, CreateEvent, Occurrence, PatchEvent, Recorder


def an_occurrence(message: str = "pulled", reference: str = "v1/Pod/ns/p/uid") -> Occurrence:
    return Occurrence(reference, "Normal", "Pulled", message)


def test_the_same_event_again_raises_its_count() -> None:
    correlator = Correlator()
    key, decision = correlator.decide(an_occurrence(), 0)
    assert decision == CreateEvent("pulled")
    correlator.written(key, "p.1", 1)
    assert correlator.decide(an_occurrence(), 1)[1] == PatchEvent("p.1", 2, "pulled")


def test_many_events_that_differ_in_words_become_one() -> None:
    correlator = Correlator()
    for number in range(SIMILAR):
        key, decision = correlator.decide(an_occurrence(f"try {number}"), number)
        assert isinstance(decision, CreateEvent)
        correlator.written(key, f"p.{number}", 1)
    key, decision = correlator.decide(an_occurrence("try 10"), 11)
    assert isinstance(decision, CreateEvent)
    assert decision.message.startswith("(combined from similar events)")
    correlator.written(key, "combined", 1)
    assert correlator.decide(an_occurrence("try 11"), 12)[1] == PatchEvent("combined", 2, decision.message)


def test_noisy_object_is_heard_every_five_minutes() -> None:
    correlator = Correlator()
    heard = [now for now in range(1200) if correlator.admits("v1/Pod/ns/p/uid", now)]
    assert int(BURST) + 3 <= len(heard) <= int(BURST) + 4
    assert correlator.admits("v1/Pod/ns/other/uid", 1200)


def test_noisy_object_takes_no_queue_place_of_others() -> None:
    recorder = Recorder(cast(Client, None), "test", SystemClock())
    noisy, quiet = ({"metadata": {"namespace": "ns", "name": name, "uid": name}} for name in ("noisy", "quiet"))
    for number in range(2 * MAX_WAITING):
        recorder.event(noisy, PODS, "Warning", "Talks", f"for the {number}th time")
    recorder.event(quiet, PODS, "Normal", "Started", "once")
    waiting = [recorder._waiting.get_nowait().reference["name"] for _ in range(recorder._waiting.qsize())]
    assert waiting == ["noisy"] * int(BURST) + ["quiet"]
