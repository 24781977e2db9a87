from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs import issuing, reading, renewal
from certs.issuing import Pair, Profile
from certs.renewal import Policy, Reason

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
YEAR = timedelta(days=365)
SERVER = Profile("virt-api", dns_names=("virt-api.kubevirt.svc",), ip_addresses=("127.0.0.1",), server=True, client=True)
AUTHORITY = issuing.new_authority("kubevirt-ca", 10 * YEAR, NOW)
OTHER = issuing.new_authority("kubevirt-ca", 10 * YEAR, NOW)
LEAF = issuing.issue(AUTHORITY, SERVER, YEAR, NOW)


def judge(leaf: Pair = LEAF, now: datetime = NOW, profile: Profile = SERVER, authority: Pair = AUTHORITY) -> Reason | None:
    signer = reading.read_certificate(authority.certificate)
    assert signer is not None
    return renewal.needs_renewal(leaf.certificate, leaf.key, now, lifetime=YEAR, profile=profile, authority=signer)


def test_a_fresh_certificate_is_good() -> None:
    assert judge() is None


def test_certificate_is_valid_with_a_clock_four_minutes_behind() -> None:
    assert judge(now=NOW - timedelta(minutes=4)) is None


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (NOW + YEAR * 0.66, None),
        (NOW + YEAR * 0.67, Reason.EXPIRING),
        (NOW + YEAR, Reason.EXPIRED),
        (NOW - timedelta(hours=1), Reason.NOT_YET_VALID),
    ],
)
def test_certificate_is_renewed_after_two_thirds_of_its_life(now: datetime, reason: Reason | None) -> None:
    assert judge(now=now) is reason


def test_each_certificate_fault_has_its_reason() -> None:
    another = issuing.issue(AUTHORITY, SERVER, YEAR, NOW)

    assert judge(Pair(b"", b"")) is Reason.MISSING
    assert judge(Pair(b"garbage", LEAF.key)) is Reason.UNREADABLE
    assert judge(Pair(LEAF.certificate, another.key)) is Reason.KEY_MISMATCH
    assert judge(Pair(LEAF.certificate, b"garbage")) is Reason.KEY_MISMATCH
    assert judge(authority=OTHER) is Reason.WRONG_SIGNER
    for changed in ({"dns_names": ("other",)}, {"ip_addresses": ()}, {"client": False}, {"common_name": "x"}):
        assert judge(profile=dataclasses.replace(SERVER, **changed)) is Reason.WRONG_PROFILE


def test_a_leaf_never_outlives_its_authority() -> None:
    short = issuing.new_authority("short", timedelta(days=1), NOW)
    leaf = reading.read_certificate(issuing.issue(short, SERVER, YEAR, NOW).certificate)

    assert leaf is not None
    assert leaf.not_after == NOW + timedelta(days=1)


def test_an_authority_signs_until_it_expires() -> None:
    assert renewal.authority_unusable(AUTHORITY.certificate, AUTHORITY.key, NOW + 9 * YEAR) is None
    assert renewal.authority_unusable(AUTHORITY.certificate, AUTHORITY.key, NOW + 10 * YEAR) is Reason.EXPIRED
    assert renewal.authority_unusable(AUTHORITY.certificate, OTHER.key, NOW) is Reason.KEY_MISMATCH
    assert renewal.authority_unusable(LEAF.certificate, LEAF.key, NOW) is Reason.NOT_AN_AUTHORITY
    assert renewal.authority_unusable(b"-----BEGIN CERTIFICATE-----\n", AUTHORITY.key, NOW) is Reason.UNREADABLE


def test_lifetimes_that_could_never_settle_are_refused() -> None:
    with pytest.raises(ValueError, match="at most a third"):
        Policy(leaf=YEAR, authority=2 * YEAR)
    with pytest.raises(ValueError, match="time to distribute"):
        Policy(leaf=timedelta(seconds=1), authority=timedelta(seconds=30), spread=timedelta(seconds=6))
    with pytest.raises(ValueError, match="node's certificate"):
        Policy(node=timedelta(minutes=9))
    with pytest.raises(ValueError, match="node's certificate"):
        Policy(spread=timedelta(0), node=timedelta(0))
    with pytest.raises(ValueError, match="last third of a leaf"):
        Policy(leaf=timedelta(minutes=29))
    assert Policy(leaf=timedelta(minutes=30), node=timedelta(minutes=10)).leaf.seconds == 1800
    assert Policy(leaf=timedelta(seconds=6), authority=timedelta(seconds=30), spread=timedelta(seconds=2)).leaf.seconds == 6


def test_private_keys_do_not_show_in_logs() -> None:
    assert LEAF.key.decode()[30:60] not in repr(LEAF)
    assert "PRIVATE" not in repr(LEAF)


@given(st.binary(max_size=200))
def test_garbage_is_an_answer_and_no_exception(garbage: bytes) -> None:
    assert reading.read_certificate(garbage) is None
    assert reading.read_bundle(garbage) == ()
    certificate = reading.read_certificate(LEAF.certificate)
    assert certificate is not None
    assert not reading.matches(certificate, garbage)


def test_a_bundle_keeps_order_and_drops_repetitions() -> None:
    pem = AUTHORITY.certificate + OTHER.certificate + AUTHORITY.certificate

    bundle = reading.read_bundle(pem)

    assert [each.pem for each in bundle] == [AUTHORITY.certificate, OTHER.certificate]
    assert reading.write_bundle(bundle) == AUTHORITY.certificate + OTHER.certificate
