from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import fields, labels
from apiserver.apis.meta.errors import BadRequest
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic import selection
from apiserver.registry.generic.strategy import Strategy


@pytest.mark.parametrize(
    ("text", "given_labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in ()", {"a": ""}, True),
        ("a in (,b)", {"a": ""}, True),
        ("a notin (b)", {}, True),
        ("a notin (b)", {"a": "b"}, False),
        ("a=", {"a": ""}, True),
        ("a=,b", {"a": "", "b": "1"}, True),
        ("in in (in, notin)", {"in": "notin"}, True),
        ("a>5", {"a": "6"}, True),
        ("a > 5", {"a": "x"}, False),
        ("a<5", {}, False),
        (" x =  y , !z ", {"x": "y"}, True),
        ("example.com/a=b", {"example.com/a": "b"}, True),
    ],
)
def test_a_label_selector_matches_as_apimachinerys(text: str, given_labels: dict[str, str], matches: bool) -> None:
    assert labels.parse(text).matches(given_labels) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a==(", "unable to parse requirement: found '(', expected: identifier"),
        ("!=a", "found '!=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a>x", "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),
    ],
)
def test_malformed_label_selector_errors_match_apimachinery(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        labels.parse(text)
    assert str(caught.value) == message


def test_bad_keys_and_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of'):
        labels.parse("-a=b")
    with pytest.raises(ValueError, match=r'unable to parse requirement: values\[0\]\[a\]: Invalid value: "-b": a valid label must be'):
        labels.parse("a=-b")
    with pytest.raises(ValueError, match="longer than"):
        labels.parse("a" * 100_000)


KEYS = st.sampled_from(["a", "b", "in", "example.com/c"])
VALUES = st.sampled_from(["", "x", "1", "42", "notin", "y.z"])
REQUIREMENTS = st.one_of(
    st.builds(labels.Requirement, KEYS, st.sampled_from([labels.Operator.EQUALS, labels.Operator.NOT_EQUALS]), st.tuples(VALUES)),
    st.builds(
        labels.Requirement,
        KEYS,
        st.sampled_from([labels.Operator.IN, labels.Operator.NOT_IN]),
        st.sets(VALUES, min_size=1).map(lambda values: tuple(sorted(values))),
    ),
    st.builds(labels.Requirement, KEYS, st.sampled_from([labels.Operator.EXISTS, labels.Operator.DOES_NOT_EXIST])),
    st.builds(labels.Requirement, KEYS, st.sampled_from([labels.Operator.GREATER_THAN, labels.Operator.LESS_THAN]), st.just(("7",))),
)


@given(st.lists(REQUIREMENTS, max_size=4), st.dictionaries(KEYS, VALUES))
def test_a_selector_written_and_parsed_again_is_the_same(requirements: list[labels.Requirement], given_labels: dict[str, str]) -> None:
    selector = labels.Selector(tuple(sorted(requirements, key=lambda each: each.key)))
    again = labels.parse(str(selector))
    assert again == selector
    assert again.matches(given_labels) == selector.matches(given_labels)


@given(st.text("ab=!(),><in \\", max_size=20))
def test_any_text_is_a_selector_or_a_value_error(text: str) -> None:
    for parse in (labels.parse, fields.parse):
        try:
            parse(text)
        except ValueError as error:
            assert str(error)  # noqa: PT017 - both outcomes are right


def test_a_selector_object_means_the_same_as_its_text() -> None:
    selector = labels.from_json(
        {
            "matchLabels": {"a": "b"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["d", "e"]},
                {"key": "f", "operator": "DoesNotExist"},
            ],
        }
    )
    assert selector == labels.parse("a=b,c in (d,e),!f")
    assert labels.from_json(None).is_everything


@pytest.mark.parametrize(
    ("text", "given_fields", "matches"),
    [
        ("", {}, True),
        ("metadata.name=a", {"metadata.name": "a"}, True),
        ("metadata.name==a,status.phase!=Running", {"metadata.name": "a", "status.phase": "Failed"}, True),
        ("a!=", {"a": ""}, False),
        (r"a=b\,c\=d\\", {"a": r"b,c=d" + "\\"}, True),
        ("!=", {}, True),
        ("a=1,,b=2", {"a": "1", "b": "2"}, True),
    ],
)
def test_a_field_selector_matches_as_apimachinerys(text: str, given_fields: dict[str, str], matches: bool) -> None:
    assert fields.parse(text).matches(given_fields) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=b\c", r"invalid field selector: invalid escape sequence: \c"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_malformed_field_selector_errors_match_apimachinery(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        fields.parse(text)
    assert str(caught.value) == message


@given(st.lists(st.tuples(st.sampled_from(["a", "status.phase"]), st.text("ab,=\\", max_size=5), st.booleans()), max_size=3))
def test_a_field_selector_written_and_parsed_again_is_the_same(terms: list[tuple[str, str, bool]]) -> None:
    selector = fields.Selector(tuple(fields.Term(*each) for each in terms))
    assert fields.parse(str(selector)).terms == tuple(sorted(selector.terms, key=str))


class _Things(Strategy):
    resource = Resource("test", "v1", "things", "Thing")
    singular = "thing"

    def selectable_fields(self, obj: dict[str, Any]) -> dict[str, str]:
        return {"spec.node": ""}


def test_fields_that_the_resource_does_not_offer_are_named() -> None:
    offered = '"metadata.name", "metadata.namespace", "spec.node"'
    with pytest.raises(BadRequest) as caught:
        selection.parse(_Things(), "", "metadata.name=a,spec.foo=b")
    assert caught.value.message == f'"spec.foo" is not a known field selector: only {offered}'
    assert selection.parse(_Things(), "", "metadata.name=a,spec.node=b").name == "a"


def test_the_value_that_a_selector_demands_is_told() -> None:
    selector = fields.parse("metadata.name=a,spec.foo=b")
    assert selector.exact("metadata.name") == "a"
    assert fields.parse("metadata.name!=a").exact("metadata.name") is None


@pytest.mark.parametrize("parse", [labels.parse, fields.parse])
def test_a_selector_has_at_most_a_thousand_terms(parse: Callable[[str], object]) -> None:
    parse(",".join(f"a{number}!=x" for number in range(1000)))
    with pytest.raises(ValueError, match="more than 1000"):
        parse(",".join(f"a{number}!=x" for number in range(1001)))


def test_in_operator_matches_among_many_values() -> None:
    chosen = labels.parse(f"a in ({','.join(f'v{number}' for number in range(100))})")
    assert [value for value in ("v0", "v99", "v100", "", "v5") if chosen.matches({"a": value})] == ["v0", "v99", "v5"]
    assert labels.from_json({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": list("zyxwvutsrqp")}]}).matches({"a": "a"})
    assert not labels.from_json({"matchExpressions": [{"key": "a", "operator": "In", "values": list("zyxwvutsrqp")}]}).matches({"a": "a"})
    assert labels.from_json({"matchExpressions": [{"key": "a", "operator": "In", "values": list("zyxwvutsrqp")}]}).matches({"a": "p"})
