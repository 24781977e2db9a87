from __future__ import annotations

import json

from benchmarks.api import report
from benchmarks.api.operations import KEYS


def a_result(**samples: dict[str, list[dict[str, object]]]) -> report.Result:
    about = {
        "revision": "abc",
        "time": "now",
        "processors": 2,
        "model": "some",
        "python": "3",
        "load_at_start": 0,
        "features": {"managedFields": False},
        "asked": "the servers directly",
    }
    return {"machine": about, "samples": samples, "failures": {}}


def a_sample(server_seconds: float, count: int, **more: object) -> dict[str, object]:
    sample = {"cpu_seconds": {"server": server_seconds, "etcd": 0.1}, "count": count, "seconds": 1.0, "connections": 16}
    return {**sample, "p50_us": 100, "p99_us": 200, "bytes_per_answer": 4400, **more}


def test_ratio_compares_medians_of_processor_time_per_operation() -> None:
    reference = [a_sample(1.0, 1000), a_sample(1.0, 500), a_sample(1.0, 100)]  # 1,000, 2,000 and 10,000 µs
    ours = [a_sample(1.0, 10_000), a_sample(1.0, 5_000), a_sample(1.0, 5_000)]  # 100, 200 and 200 µs
    assert report.finish(a_result(get={"reference": reference, "ours": ours}))["ratios"] == {"get": 10.0}


def test_a_watch_is_counted_by_what_was_delivered() -> None:
    assert report.cost("watch_50", a_sample(1.0, 50, deliveries=5_000)) == 200.0


def test_memory_is_compared_as_it_is() -> None:
    result = a_result(memory_10k={"reference": [{"rss_kib": 400_000}], "ours": [{"rss_kib": 100_000}]})
    assert report.finish(result)["ratios"] == {"memory_10k": 4.0}


def test_measurement_of_one_side_has_no_ratio() -> None:
    assert report.finish(a_result(get={"reference": [a_sample(1.0, 1000)]}))["ratios"] == {}


def test_different_review_shares_give_no_ratio_but_a_failure() -> None:
    reference = [a_sample(1.0, 1000, reviewed=share) for share in (0.9, 0.24, 0.22)]
    ours = [a_sample(1.0, 2000, reviewed=0.35)]
    found = report.finish(
        a_result(
            varied_get={"reference": reference, "ours": ours},
            varied_patch={"reference": reference, "ours": [a_sample(1.0, 4000, reviewed=0.15)]},
        )
    )
    assert found["ratios"] == {"varied_patch": 4.0}
    assert found["failures"] == {
        "varied_get": {"ours": "it asked for 0.35 reviews a request, reference for 0.24: they had not the same to do"}
    }


def test_the_table_says_which_row_falls_short_and_what_failed() -> None:
    result = a_result(create={"reference": [a_sample(1.0, 1000)], "ours": [a_sample(1.0, 2000)]})
    result["failures"] = {"apply": {"ours": "status 415"}}
    table = report.table(report.finish(result))
    (row,) = [line for line in table.splitlines() if line.startswith("create ") and "SHORT" in line]
    assert "2.0" in row
    assert "apply at ours failed: status 415" in table
    assert "managedFields NOT YET" in table


def test_the_json_can_be_read_again() -> None:
    result = report.finish(a_result(get={"reference": [a_sample(1.0, 1000)], "ours": [a_sample(1.0, 2000)]}))
    assert json.loads(report.encode(result)) == result


def test_every_row_is_measured() -> None:
    assert set(KEYS) == {
        "get", "get_rv0", "list_1k", "list_10k", "create", "update", "patch", "apply", "watch_50", "watch_saturated", "memory_10k",
        "handshake", "varied_get", "varied_get_rv0", "varied_update", "varied_patch", "varied_watch_50",
    }  # fmt: skip


def test_these_ratios_are_wanted() -> None:
    assert report.finish(a_result())["wanted"] == {
        "varied_get": 2, "varied_get_rv0": 2, "varied_update": 3, "varied_patch": 3.5, "varied_watch_50": 1.8,
        "list_1k": 9, "list_10k": 9, "create": 3, "apply": 3, "watch_50": 2, "watch_saturated": 3, "memory_10k": 4.5,
    }  # fmt: skip
    assert set(report.finish(a_result(), through_aggregator=True)["wanted"].values()) == {2.5}


def test_a_varied_row_says_how_many_requests_were_reviewed() -> None:
    samples = [a_sample(1.0, 1000, reviewed=0.25)]
    result = report.finish(a_result(varied_get={"reference": samples, "ours": samples}))
    assert result["ratios"] == {"varied_get": 1.0}
    row, *speeds = [line for line in report.table(result).splitlines() if line.startswith("varied_get ")]
    assert row.endswith("SHORT")
    assert [each.rpartition("  ")[2] for each in speeds] == ["0.25 reviews a request"] * 2


def test_each_reference_is_compared_by_its_own_review_share() -> None:
    reference, tuned = ([a_sample(1.0, 1000, reviewed=share)] for share in (0.25, 0.05))
    ours = [a_sample(1.0, 2000, reviewed=0.05)]
    found = report.finish(a_result(varied_get={"reference": reference, "reference400": tuned, "ours": ours}))
    assert (found["ratios"], found["ratios_gogc400"]) == ({}, {"varied_get": 2.0})
    assert set(found["failures"]) == {"varied_get"}


def test_failed_side_is_reported_without_review_shares() -> None:
    samples = [a_sample(1.0, 1000, reviewed=0.25)]
    result = a_result(
        varied_get={"reference": samples}, varied_patch={"ours": samples}, varied_update={"reference": samples, "ours": [a_sample(1.0, 1)]}
    )
    result["failures"] = {"varied_update": {"ours": "status 500"}}
    assert report.finish(result)["failures"] == {"varied_update": {"ours": "status 500"}}
