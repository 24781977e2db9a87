from __future__ import annotations

from apiserver.apis.meta import names, objectmeta


def test_overlong_label_keys_are_refused_and_not_cached() -> None:
    before = names._is_qualified_name.cache_info().currsize
    assert not names.are_qualified_names(["a" * 100_000])
    assert names._is_qualified_name.cache_info().currsize == before
    assert names.are_qualified_names([])


def test_a_time_of_many_digits_is_read_and_not_remembered() -> None:
    before = objectmeta._is_known_time.cache_info().currsize
    metadata = {"creationTimestamp": f"2026-11-21T00:00:00.{'1' * 100_000}Z", "deletionTimestamp": "x" * 100_000}
    unknown, found = objectmeta.read(metadata)
    assert (unknown, [each.path for each in found]) == ([], ["metadata.deletionTimestamp"])
    assert objectmeta._is_known_time.cache_info().currsize == before
