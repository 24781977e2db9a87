from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apiserver.registry.generic import deletion
from apiserver.registry.generic.options import DeleteOptions

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("present", "options", "expected"),
    [
        ([], DeleteOptions(), []),
        (["a/b"], DeleteOptions(), ["a/b"]),
        ([], DeleteOptions(policy="Foreground"), ["foregroundDeletion"]),
        (["orphan"], DeleteOptions(policy="Foreground"), ["foregroundDeletion"]),
        (["foregroundDeletion", "a/b"], DeleteOptions(policy="Orphan"), ["a/b", "orphan"]),
        (["foregroundDeletion", "orphan"], DeleteOptions(policy="Background"), []),
        (["orphan"], DeleteOptions(), ["orphan"]),
        (["foregroundDeletion"], DeleteOptions(), ["foregroundDeletion"]),
        (["foregroundDeletion"], DeleteOptions(orphan_dependents=True), ["orphan"]),
        (["orphan"], DeleteOptions(orphan_dependents=False), []),
        (["foregroundDeletion", "a/b"], DeleteOptions(policy="Foreground"), ["foregroundDeletion", "a/b"]),
    ],
)
def test_the_collectors_finalizers_follow_the_policy(present: list[str], options: DeleteOptions, expected: list[str]) -> None:
    assert deletion.finalizers({"metadata": {"finalizers": present}}, options) == expected


def test_marking_happens_once() -> None:
    obj = {"metadata": {"generation": 3, "finalizers": ["a/b"]}}
    assert not deletion.mark(obj, DeleteOptions(), NOW)
    marked = {"generation": 4, "finalizers": ["a/b"], "deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 0}
    assert obj["metadata"] == marked
    assert not deletion.mark(obj, DeleteOptions(), NOW.replace(year=2030))
    assert obj["metadata"] == marked


def test_last_finalizer_releases_only_objects_being_deleted() -> None:
    dying = {"metadata": {"deletionTimestamp": "x", "finalizers": ["a/b"]}}
    assert deletion.released({"metadata": {}}, dying)
    assert not deletion.released({"metadata": {"finalizers": ["c/d"]}}, dying)
    assert not deletion.released({"metadata": {}}, {"metadata": {"finalizers": ["a/b"]}})
