from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import quantity, times


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1023, "1000"),
        (2093056, "2000Ki"),
        (8 << 20, "8Mi"),
        (1023 << 20, "1000Mi"),
        (54118453248, "50Gi"),
        (54118453248 + 100_000_000, "50Gi"),
        ((9 << 30) - 1, "9200Mi"),
        (9 << 30, "9Gi"),
        (5 << 70, "5100Ei"),
    ],
)
def test_free_room_is_rounded_down_to_two_figures(amount: int, text: str) -> None:
    assert quantity.about(amount) == text
    assert quantity.parse(text).bytes <= amount


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (999, "999"), (1000, "0.977Ki"), (1 << 20, "1Mi"), (54_945_382, "52.4Mi"), (3 << 29, "1.5Gi"), ((1 << 63) - 1, "8Ei")],
)
def test_an_amount_of_bytes_is_shown_in_three_figures(amount: int, text: str) -> None:
    assert quantity.shown(amount) == text


@pytest.mark.parametrize(("amount", "text"), [(1, "1"), (68719476736, "64Gi"), (3 << 29, "1536Mi"), ((1 << 30) + 1, "1073741825")])
def test_bytes_are_written_exactly_as_people_do(amount: int, text: str) -> None:
    assert quantity.of_bytes(amount) == text


@pytest.mark.parametrize(
    ("text", "canonical", "in_bytes", "milli"),
    [
        ("0", "0", 0, 0),
        ("512Mi", "512Mi", 512 << 20, 512_000 << 20),
        ("1024Mi", "1Gi", 1 << 30, 1000 << 30),
        ("1.5Gi", "1536Mi", 3 << 29, 1500 << 30),
        ("0.5Ki", "512", 512, 512_000),
        ("0.5", "500m", 1, 500),
        ("1500m", "1500m", 2, 1500),
        ("2000m", "2", 2, 2000),
        ("1e3", "1e3", 1000, 1_000_000),
        ("12E", "9223372036854775807", 2**63 - 1, (2**63 - 1) * 1000),
        ("1E", "1E", 10**18, 10**21),
        ("1E2", "100", 100, 100_000),
        ("-1500m", "-1500m", -2, -1500),
        ("+5", "5", 5, 5000),
        (".5", "500m", 1, 500),
        ("5.", "5", 5, 5000),
        ("1n", "1n", 1, 1),
        ("0.1n", "1n", 1, 1),
        ("100k", "100k", 100_000, 100_000_000),
        ("1.1Ki", "1126400m", 1127, 1_126_400),
    ],
)
def test_a_quantity_is_read_and_written_as_apimachinery_does(text: str, canonical: str, in_bytes: int, milli: int) -> None:
    amount = quantity.parse(text)
    assert (str(amount), amount.bytes, amount.milli) == (canonical, in_bytes, milli)


@pytest.mark.parametrize("text", ["", " 1", "1 Mi", "1mi", "Mi", "1.2.3", "--1", "1e", "0x10", "1_000", "٣", "1e999999999", "9" * 100, "."])
def test_invalid_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantit(ies must|y)"):
        quantity.parse(text)


QUANTITIES = st.builds(
    lambda number, suffix: f"{number}{suffix}",
    st.one_of(st.integers(-(10**6), 10**6), st.decimals(-1000, 1000, places=3)),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-2"]),
)


@given(QUANTITIES)
def test_the_canonical_form_means_the_same_and_is_final(text: str) -> None:
    amount = quantity.parse(text)
    assert quantity.parse(str(amount)) == amount
    assert str(quantity.parse(str(amount))) == str(amount)


@given(QUANTITIES, QUANTITIES)
def test_quantities_add_up(left: str, right: str) -> None:
    a, b = quantity.parse(left), quantity.parse(right)
    assert a + b == b + a
    assert (a + b) - b == a
    assert (a < b) == (b > a)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (330, "5m30s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (8 * 3600 + 300, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (76 * 3600, "3d4h"),
        (8 * 86_400 + 3600, "8d"),
        (729 * 86_400, "729d"),
        (730 * 86_400, "2y"),
        (1000 * 86_400, "2y270d"),
        (9 * 365 * 86_400 + 86_400, "9y"),
    ],
)
def test_an_age_is_printed_as_kubectl_users_know_it(seconds: int, text: str) -> None:
    assert times.human(timedelta(seconds=seconds)) == text


def test_unknown_age_is_shown_as_unknown() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert times.age(None, now) == "<unknown>"
    assert times.age("yesterday", now) == "<unknown>"
    assert times.age("2025-12-31T23:59:00Z", now) == "60s"


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2999, 1, 1)))  # noqa: DTZ001 - hypothesis wants naive bounds
def test_times_survive_writing_and_reading(naive: datetime) -> None:
    moment = naive.replace(tzinfo=UTC)
    assert times.parse(times.to_rfc3339_micro(moment)) == moment
    assert times.parse(times.to_rfc3339(moment)) == moment.replace(microsecond=0)


def test_other_spellings_of_rfc_3339_are_read() -> None:
    wanted = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
    for text in ("2026-01-02T03:04:05.6Z", "2026-01-02T05:04:05.600000000+02:00", "2026-01-02t03:04:05.6z"):
        assert times.parse(text) == wanted
    beyond = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00Z")
    for text in ("2026-01-02", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z", "", *beyond):
        with pytest.raises(ValueError, match=r"."):
            times.parse(text)
        assert times.parsed(text) is None


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("1m30s", 90), ("1.5h", 5400), ("-2s", -2), ("100ms", 0.1), ("+1s", 1)])
def test_a_go_duration_is_read(text: str, seconds: float) -> None:
    assert times.parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "1", "s", "1x", "1 s", "1s ", "--1s", "9999999999999h", "-2562048h", "9" * 400 + "s"])
def test_invalid_go_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time: invalid duration"):
        times.parse_duration(text)
