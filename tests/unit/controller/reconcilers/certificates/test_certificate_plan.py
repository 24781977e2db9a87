from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from apiserver.apis.meta import times
from certs import issuing, reading
from certs.issuing import Pair, Profile
from certs.renewal import Policy, Reason
from controller.reconcilers.certificates import certificate_plan
from controller.reconcilers.certificates.certificate_plan import (
    BUNDLE,
    CERTIFICATE,
    KEY,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    Authority,
    Data,
    InjectBundle,
    IssueLeaf,
    Leaf,
    MakeAuthority,
    MarkSpread,
    Observed,
    PromoteAuthority,
    StageAuthority,
    WriteBundle,
    decoded,
    fingerprint,
    plan,
    staged_pair,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
POLICY = Policy(leaf=timedelta(days=10), authority=timedelta(days=90), spread=timedelta(minutes=10), node=timedelta(days=1))
LEAF = Leaf("leaf", Profile("server", ("server",), server=True))
WANTED = Authority("ca", "ca", (LEAF,))


def an_authority(*, age: timedelta = timedelta(), life: timedelta = POLICY.authority) -> Pair:
    return issuing.new_authority("ca", life, NOW - age)


OLD, NEXT, EXPIRED, FUTURE = an_authority(age=timedelta(days=61)), an_authority(), an_authority(age=timedelta(days=91)), an_authority(
    age=-timedelta(days=1)
)  # fmt: skip
ENDING = an_authority(age=POLICY.authority)
GOOD = an_authority(age=timedelta(days=2))


def a_leaf(by: Pair) -> Pair:
    return issuing.issue(by, LEAF.profile, POLICY.leaf, NOW)


LEAVES = {each.certificate: a_leaf(each) for each in (OLD, NEXT, GOOD)}


def bundle(*pairs: Pair) -> bytes:
    return b"".join(each.certificate for each in pairs)


def data(signer: Pair | None, *trusted: Pair, staged: Pair | None = None) -> Data:
    found = {BUNDLE: bundle(*trusted)}
    if signer is not None:
        found |= {CERTIFICATE: signer.certificate, KEY: signer.key}
    if staged is not None:
        found |= {NEXT_CERTIFICATE: staged.certificate, NEXT_KEY: staged.key}
    return found


def seen(
    authority: Data | None, *, by: Pair = GOOD, trusting: bytes | None = None, injected: str | None = None, since: str = ""
) -> Observed:
    """Return the plan's input: ``by`` signed the leaf; leaf and API trust ``trusting`` (default: the authority's bundle).

    ``injected``: another fingerprint for the API. ``since``: when all began to trust; empty: not yet.
    """
    carried = (authority or {}).get(BUNDLE, b"") if trusting is None else trusting
    leaf = {CERTIFICATE: LEAVES[by.certificate].certificate, KEY: LEAVES[by.certificate].key, BUNDLE: carried}
    return Observed(authority, since, {"leaf": leaf}, {"api": fingerprint(carried) if injected is None else injected})


def mark(signer: Pair, *trusted: Pair, at: datetime) -> str:
    found = reading.read_certificate(signer.certificate)
    assert found is not None
    return f"{found.fingerprint[:16]}/{fingerprint(bundle(*trusted))} {times.to_rfc3339_micro(at)}"


def decide(observed: Observed, wanted: Authority = WANTED) -> tuple[certificate_plan.Action, ...]:
    return plan(wanted, observed, NOW, POLICY)


@pytest.mark.parametrize(
    "unusable",
    [
        data(EXPIRED, EXPIRED, NEXT),
        data(FUTURE, FUTURE, NEXT),
        data(None, OLD, NEXT),
        {**data(GOOD, GOOD), KEY: NEXT.key},
        {**data(GOOD, GOOD), CERTIFICATE: b"garbage"},
        {**data(GOOD, GOOD), CERTIFICATE: LEAVES[GOOD.certificate].certificate, KEY: LEAVES[GOOD.certificate].key},
    ],
    ids=["expired", "future", "absent", "another key", "garbage", "no authority"],
)
def test_unusable_authority_is_replaced_by_the_staged_one(unusable: Data) -> None:
    staged = {**unusable, NEXT_CERTIFICATE: NEXT.certificate, NEXT_KEY: NEXT.key}
    assert decide(seen(staged)) == (PromoteAuthority("ca"),)
    assert staged_pair(staged) == NEXT
    for other in (EXPIRED, FUTURE, replace(NEXT, key=GOOD.key), replace(NEXT, certificate=b"garbage"), replace(NEXT, key=b"")):
        (made,) = decide(seen({**unusable, NEXT_CERTIFICATE: other.certificate, NEXT_KEY: other.key}))
        assert isinstance(made, MakeAuthority)


@pytest.mark.parametrize(
    ("authority", "reason", "retiring"),
    [
        (None, Reason.MISSING, ()),
        ({}, Reason.MISSING, ()),
        (data(EXPIRED, EXPIRED), Reason.EXPIRED, ()),
        (data(FUTURE, FUTURE), Reason.NOT_YET_VALID, (FUTURE,)),
        (data(EXPIRED, EXPIRED, OLD, GOOD), Reason.EXPIRED, (OLD, GOOD)),
        (data(ENDING, ENDING), Reason.EXPIRED, ()),
        ({**data(GOOD, GOOD, NEXT), KEY: NEXT.key}, Reason.KEY_MISMATCH, (GOOD, NEXT)),
        ({**data(GOOD, GOOD), CERTIFICATE: b"garbage"}, Reason.UNREADABLE, (GOOD,)),
        ({**data(GOOD), KEY: b""}, Reason.MISSING, ()),
    ],
)
def test_unusable_authority_is_replaced_and_valid_ones_kept(authority: Data | None, reason: Reason, retiring: tuple[Pair, ...]) -> None:
    assert decide(seen(authority)) == (MakeAuthority("ca", reason, bundle(*retiring)),)


def test_a_leaf_in_the_place_of_an_old_authority_is_not_trusted() -> None:
    among = {**data(EXPIRED), BUNDLE: bundle(GOOD, LEAVES[GOOD.certificate])}
    assert decide(seen(among)) == (MakeAuthority("ca", Reason.EXPIRED, bundle(GOOD)),)


def test_at_rest_nothing_is_to_be_done() -> None:
    assert decide(seen(data(GOOD, GOOD))) == ()
    assert decide(replace(seen(data(GOOD, GOOD)), injected={})) == ()


def test_next_authority_is_staged_with_a_third_of_its_life_left() -> None:
    third = POLICY.authority / 3
    for age, due in ((POLICY.authority - third - timedelta(hours=1), False), (POLICY.authority - third + timedelta(hours=1), True)):
        pair = an_authority(age=age)
        LEAVES[pair.certificate] = a_leaf(pair)
        actions = decide(seen(data(pair, pair), by=pair))
        assert actions == ((StageAuthority("ca", Reason.EXPIRING),) if due else ())


def test_staged_authority_is_distributed_and_not_staged_again() -> None:
    staged = data(OLD, OLD, staged=NEXT)
    assert decide(seen(staged, by=OLD)) == (WriteBundle("ca", bundle(OLD, NEXT)),)
    told = data(OLD, OLD, NEXT, staged=NEXT)
    assert decide(seen(told, by=OLD, trusting=bundle(OLD))) == (
        WriteBundle("leaf", bundle(OLD, NEXT)),
        InjectBundle("api", bundle(OLD, NEXT)),
    )
    assert decide(seen(told, by=OLD, injected=fingerprint(bundle(OLD)))) == (InjectBundle("api", bundle(OLD, NEXT)),)
    assert decide(seen(told, by=OLD)) == (MarkSpread("ca", mark(OLD, OLD, NEXT, at=NOW)),)


@pytest.mark.parametrize("carried", [b"", b"-", b"~"])
def test_consumers_with_another_bundle_get_the_current_one(carried: bytes) -> None:
    """Another bundle trusts too few authorities, or one for too long."""
    assert decide(seen({**data(GOOD), BUNDLE: carried}))[0] == WriteBundle("ca", bundle(GOOD))
    assert decide(seen(data(GOOD, GOOD), trusting=carried, injected=fingerprint(bundle(GOOD)))) == (WriteBundle("leaf", bundle(GOOD)),)
    assert decide(seen(data(GOOD, GOOD), injected=carried.decode())) == (InjectBundle("api", bundle(GOOD)),)


@pytest.mark.parametrize(
    ("since", "action"),
    [
        (mark(OLD, OLD, NEXT, at=NOW - POLICY.spread - SECOND), PromoteAuthority("ca")),
        (mark(OLD, OLD, NEXT, at=NOW - POLICY.spread), PromoteAuthority("ca")),
        (mark(OLD, OLD, NEXT, at=NOW - POLICY.spread + SECOND), None),
        (mark(OLD, OLD, NEXT, at=NOW), None),
        (mark(OLD, OLD, NEXT, at=NOW + SECOND), MarkSpread),
        (mark(OLD, OLD, at=NOW - POLICY.spread), MarkSpread),
        (mark(NEXT, OLD, NEXT, at=NOW - POLICY.spread), MarkSpread),
        (mark(OLD, OLD, NEXT, at=NOW).partition(" ")[0] + " yesterday", MarkSpread),
        (f"0 {times.to_rfc3339(NOW - POLICY.spread)}", MarkSpread),
        (f"~ {times.to_rfc3339(NOW - POLICY.spread)}", MarkSpread),
        ("", MarkSpread),
    ],
    ids=[
        "long spread",
        "spread",
        "spreading",
        "just marked",
        "clock set back",
        "another bundle",
        "another signer",
        "no time",
        "a smaller",
        "a larger",
        "no mark",
    ],
)
def test_staged_authority_signs_after_being_trusted_for_a_while(since: str, action: object) -> None:
    actions = decide(seen(data(OLD, OLD, NEXT, staged=NEXT), by=OLD, since=since))
    if action is MarkSpread:
        assert actions == (MarkSpread("ca", mark(OLD, OLD, NEXT, at=NOW)),)
    else:
        assert actions == (() if action is None else (action,))


def test_promotion_reissues_leaves_first() -> None:
    promoted = data(NEXT, NEXT, OLD)
    assert decide(seen(promoted, by=OLD)) == (IssueLeaf(LEAF, Reason.WRONG_SIGNER, bundle(NEXT, OLD)),)
    assert decide(replace(seen(promoted), leaves={})) == (IssueLeaf(LEAF, Reason.MISSING, bundle(NEXT, OLD)),)
    assert decide(seen(promoted, by=NEXT)) == (MarkSpread("ca", mark(NEXT, NEXT, OLD, at=NOW)),)


@pytest.mark.parametrize(("wanted", "trusted"), [(WANTED, POLICY.spread), (replace(WANTED, signs_for_nodes=True), POLICY.node)])
def test_old_authority_is_trusted_until_its_leaves_expire(wanted: Authority, trusted: timedelta) -> None:
    alone = (WriteBundle("ca", bundle(NEXT)),)
    for at, actions in ((NOW - trusted - SECOND, alone), (NOW - trusted, alone), (NOW - trusted + SECOND, ())):
        assert decide(seen(data(NEXT, NEXT, OLD), by=NEXT, since=mark(NEXT, NEXT, OLD, at=at)), wanted) == actions


def test_bundle_keeps_only_valid_authorities_without_duplicates() -> None:
    for trusted in ((), (NEXT, GOOD), (GOOD, GOOD), (GOOD, EXPIRED), (EXPIRED,), (GOOD, ENDING), (GOOD, LEAVES[GOOD.certificate])):
        actions = decide(seen(data(GOOD, *trusted)))
        expected = bundle(GOOD, *(each for each in trusted if each is NEXT))
        assert actions[:1] == (WriteBundle("ca", expected),)
    assert decide(seen({**data(GOOD), BUNDLE: b"garbage"})) == (WriteBundle("ca", bundle(GOOD)),)


def test_a_fingerprint_is_of_the_set() -> None:
    assert fingerprint(bundle(OLD, NEXT)) == fingerprint(bundle(NEXT, OLD)) != fingerprint(bundle(OLD))
    assert len(fingerprint(b"")) == 16


def test_no_key_and_no_bundle_is_in_what_logs_may_say_of_a_plan() -> None:
    plans = [
        decide(seen(authority, by=by, trusting=b""))
        for authority, by in ((data(EXPIRED, GOOD), GOOD), (data(NEXT, NEXT, OLD), OLD), (data(GOOD), GOOD), (data(GOOD, GOOD), GOOD))
    ]
    assert {type(each) for actions in plans for each in actions} == {MakeAuthority, IssueLeaf, WriteBundle, InjectBundle}
    said = repr((seen(data(OLD, OLD, staged=NEXT)), plans))
    assert "PRIVATE" not in said
    assert "BEGIN" not in said


@pytest.mark.parametrize(("value", "meant"), [("YWJj", b"abc"), ("YWJ", b""), ("", b""), (None, b""), (7, b"")])
def test_secret_data_is_decoded_and_invalid_base64_is_empty(value: object, meant: bytes) -> None:
    assert decoded(value) == meant
