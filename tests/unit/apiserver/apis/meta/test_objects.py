from __future__ import annotations

from apiserver.apis.meta.objects import generation_of, new_condition, with_condition, with_conditions_judged, with_status_condition

OBJ = {"metadata": {"name": "a", "generation": 3}}
NEW = {"type": "Ready", "status": "True", "reason": "Here", "message": "it is", "observedGeneration": 3}
EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def test_a_condition_is_about_the_generation_of_its_object() -> None:
    assert new_condition(OBJ, "Ready", "True", "Here", "it is") == NEW
    assert generation_of({}) == new_condition({}, "Ready", "True", "", "")["observedGeneration"] == 0


def test_condition_replaces_its_type_and_keeps_time_if_unchanged() -> None:
    others = [
        {"type": "A", "status": "True"},
        {"type": "Ready", "status": "True", "lastTransitionTime": EARLIER},
        {"type": "B", "status": "True"},
    ]
    status = {"phase": "Running", "conditions": others}
    found = with_status_condition(status, NEW, now=NOW)
    assert found == {"phase": "Running", "conditions": [others[0], {**NEW, "lastTransitionTime": EARLIER}, others[2]]}
    changed = with_status_condition(status, {**NEW, "status": "False"}, now=NOW)
    assert changed["conditions"][1]["lastTransitionTime"] == NOW
    assert status["conditions"] == others
    assert with_status_condition({}, NEW, now=NOW) == {"conditions": with_condition(None, NEW, now=NOW)}
    assert with_condition([], NEW, now=NOW) == [{**NEW, "lastTransitionTime": NOW}]


def test_judged_conditions_get_the_present_generation() -> None:
    others = [{"type": "A", "status": "True"}, {"type": "B", "status": "True", "observedGeneration": 2}]
    for ready in ({**NEW, "observedGeneration": 2}, {each: NEW[each] for each in NEW if each != "observedGeneration"}):
        status = {"phase": "Running", "conditions": [*others, ready]}
        assert with_conditions_judged(OBJ, status, ("Ready",)) == {"phase": "Running", "conditions": [*others, NEW]}
        assert ready != NEW
    assert with_conditions_judged(OBJ, {"phase": "Running"}, ("Ready",)) == {"phase": "Running"}
