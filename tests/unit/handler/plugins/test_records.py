from __future__ import annotations

import stat
import uuid
from pathlib import Path

import pytest

from handler.plugins.records import Element, Record, Records

UID = str(uuid.UUID(int=7))
RECORD = Record("storage", UID, "data", "images", {"machine": {"name": "vm"}, "disk": {"name": "data"}})


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records")


def test_the_next_process_finds_what_was_written_last(records: Records, tmp_path: Path) -> None:
    records.write(RECORD)
    answered = RECORD.answered({"disk": {"size": 512}})
    records.write(answered)
    other = Record("network", UID, "data", "isolated", {})
    records.write(other)
    again = Records(tmp_path / "records")
    assert again.of(Element("storage", UID, "data")) == answered
    assert again.of(Element("storage", UID, "other")) is None
    assert sorted(again.all(), key=lambda each: each.kind) == [other, answered]
    assert {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "records").glob("*/*")} == {0o600}


def test_removed_records_leave_no_files(records: Records, tmp_path: Path) -> None:
    for record in (RECORD, Record("storage", UID, "other", "images", {})):
        records.write(record)
    records.remove(RECORD)
    records.remove(RECORD)
    assert [each.element for each in records.all()] == ["other"]
    records.remove(Record("storage", UID, "other", "images", {}))
    assert list((tmp_path / "records").iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"plugin": "a"}', '{"plugin": "a", "document": 7, "result": null}'], ids=repr)
def test_unreadable_record_does_not_hide_the_others(records: Records, tmp_path: Path, text: str) -> None:
    records.write(RECORD)
    broken = tmp_path / "records" / UID / "storage-broken.json"
    broken.write_text(text)
    (tmp_path / "records" / UID / "foreign-data.json").write_text("{}")
    assert list(records.all()) == [RECORD]
    assert records.of(Element("storage", UID, "broken")) is None


@pytest.mark.parametrize(("uid", "element"), [("../x", "data"), (UID, "../data"), (UID, ""), ("", "data"), (UID, "a/b")])
def test_a_name_that_leads_elsewhere_is_no_record(records: Records, uid: str, element: str) -> None:
    with pytest.raises(ValueError, match="are not valid names"):
        records.write(Record("storage", uid, element, "images", {}))
