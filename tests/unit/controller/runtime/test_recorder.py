from __future__ import annotations

from controller.runtime.recorder import BURST, SIMILAR, Again, Correlator, New, Occurrence


def an_occurrence(message: str = "pulled", reference: str = "v1/Pod/ns/p/uid") -> Occurrence:
    return Occurrence(reference, "Normal", "Pulled", message)


def test_the_same_event_again_raises_its_count() -> None:
    correlator = Correlator()
    key, decision = correlator.decide(an_occurrence(), 0)
    assert decision == New("pulled")
    correlator.written(key, "p.1", 1)
    assert correlator.decide(an_occurrence(), 1)[1] == Again("p.1", 2, "pulled")


def test_many_events_that_differ_in_words_become_one() -> None:
    correlator = Correlator()
    for number in range(SIMILAR):
        key, decision = correlator.decide(an_occurrence(f"try {number}"), number)
        assert isinstance(decision, New)
        correlator.written(key, f"p.{number}", 1)
    key, decision = correlator.decide(an_occurrence("try 10"), 11)
    assert isinstance(decision, New)
    assert decision.message.startswith("(combined from similar events)")
    correlator.written(key, "combined", 1)
    assert correlator.decide(an_occurrence("try 11"), 12)[1] == Again("combined", 2, decision.message)


def test_an_object_that_never_stops_talking_is_heard_every_five_minutes() -> None:
    correlator = Correlator()
    heard = [now for now in range(1200) if correlator.decide(an_occurrence(), now)[1] is not None]
    assert int(BURST) + 3 <= len(heard) <= int(BURST) + 4
    assert correlator.decide(an_occurrence(reference="v1/Pod/ns/other/uid"), 1200)[1] is not None
