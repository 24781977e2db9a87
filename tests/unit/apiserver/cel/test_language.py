"""CEL, by section of its specification. ``tests/reference_cel`` compares more with cel-go."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.cel.compiler import compile_expression
from apiserver.cel.cost import PER_CALL_LIMIT
from apiserver.cel.environment import Environment, Result
from apiserver.cel.library.kubernetes import LIBRARY, PATCH_LIBRARY
from apiserver.cel.syntax import MAX_DEPTH
from apiserver.cel.values import CompileError, Duration, Message, Timestamp, UInt

ENVIRONMENT = Environment(LIBRARY, frozenset({"object", "items"}), {"object": frozenset({"spec", "metadata"})})
OBJECT: dict[str, Any] = {
    "metadata": {"name": "vm", "labels": {"app": "db"}},
    "spec": {"running": True, "replicas": 2, "disks": [{"name": "a", "size": 1}, {"name": "b"}], "nothing": None},
}


def evaluate(text: str, environment: Environment = ENVIRONMENT, **more: Any) -> Result:
    return compile_expression(environment, text).evaluate({"object": OBJECT, **more})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31), ("-9223372036854775808", -(2**63)), ("7u", UInt(7)), ("1.5e3", 1500.0), (r"'\x41\u00e4\101\n'", "AäA\n"),
        (r"r'\n'", "\\n"), (r"b'\xff'", b"\xff"), ("'''a'b'''", "a'b"), ("[1, 2,]", [1, 2]), ("{'a': 1}", {"a": 1}), ("null", None),
        ("1 // one", 1),
        ("1 + 2 * 3 - 4 / 2 % 3", 5), ("-5 / 2", -2), ("-5 % 3", -2), ("'a' + 'b'", "ab"), ("[1] + [2]", [1, 2]), ("2u * 3u", UInt(6)),
        ("1 < 1.5 && 2u >= 2", True), ("'a' in ['b', 'a']", True), ("'x' in {'a': 1}", False), ("dyn(1) == dyn(true)", False),
        ("dyn(1) == 1.0", True), ("[dyn(1)] == [dyn(1.0)]", True), ("true ? 1 : 2", 1), ("!false", True), ("1 == 1 == true", True),
        ("duration('1h') + duration('30m')", Duration(5400 * 10**9)), ("timestamp(1) - timestamp(0)", Duration(10**9)),
        # errors that ``||``, ``&&`` and macros absorb
        ("1 / 0 > 0 || true", True), ("false && 1 / 0 > 0", False), ("[1, 0].exists(x, 1 / x > 0)", True),
        ("object.spec.replicas", 2), ("object['spec'].disks[1].name", "b"), ("has(object.spec.none)", False),
        ("has(object.spec.nothing)", True),
        ("object.spec.?none.orValue(7)", 7), ("object.?spec.?replicas.optMap(x, x + 1).value()", 3),
        ("object.spec.disks[?5].hasValue()", False),
        ("[?object.spec.?replicas, ?object.spec.?none]", [2]),
        ("object.spec.disks.map(d, d.name)", ["a", "b"]), ("object.spec.disks.filter(d, has(d.size)).size()", 1),
        ("[1, 2].exists_one(x, x > 1)", True), ("[3, 4].transformList(i, v, i + v)", [3, 5]),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, k)", {"b": "b"}), ("{'a': 'x'}.transformMapEntry(k, v, {v: k})", {"x": "a"}),
        ("[1, 2].map(x, [3].map(x, x))", [[3], [3]]), ("['b', 'a'].sortBy(x, x)", ["a", "b"]),
        ("int('12') + int(1.9) + int(2u)", 15), ("string(1.0) + string(1e21) + string(true)", "11e+21true"),
        ("type(1) == int && type(object) == map && type(null) == null_type", True), ("size('äb') + 'äb'.size()", 4),
        ("timestamp('2020-02-29T23:30:00Z').getDate('+01:00')", 1), ("timestamp('1970-01-01T00:00:01Z')", Timestamp(10**9)),
    ],
)  # fmt: skip
def test_an_expression_has_this_value(text: str, value: Any) -> None:
    result = evaluate(text)
    assert result.error == ""
    assert (type(result.value), result.value) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("9223372036854775807 + 1", "integer overflow"), ("1u - 2u", "unsigned integer overflow"), ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"), ("object.spec.none", "no such key: none"), ("[1][1]", "index out of bounds: 1"),
        ("dyn(1) + dyn('a')", "no such overload"), ("items", "no such attribute(s): items"), ("1 / 0 > 0 && true", "division by zero"),
        ("'abc'.matches('(')", "error parsing regexp: missing ): ("), ("[].max()", "max called on empty list"),
        ("dyn(1) ? 1 : 2", "no such overload"), ("timestamp('x')", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse'),
    ],
)  # fmt: skip
def test_an_expression_fails_with_go_s_words(text: str, error: str) -> None:
    assert evaluate(text).error == error


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("foo", "undeclared reference to 'foo'"), ("foo(1)", "undeclared reference to 'foo'"),
        ("object.nothing", "undefined field 'nothing'"),
        ("1 +", "Syntax error"), ("'a", "Syntax error"), ("if", "reserved identifier: if"), ("size(1, 2, 3)", "no matching overload"),
        ("has(object)", "invalid argument to has() macro"), ("[1].map(1, 2)", "argument must be a simple name"),
        ("cel.bind(x, 1, x)", "undeclared"),
        ("9223372036854775808", "invalid int literal"), ("Object{a: 1}", "undeclared reference to 'Object'"), ("'abc'.reverse()", None),
        ("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), "recursion limit"), ("1" * 100_001, "code point size exceeds limit"),
    ],
)  # fmt: skip
def test_an_expression_is_refused_when_it_is_compiled(text: str, why: str | None) -> None:
    if why is None:
        assert evaluate(text).error == "no such overload"
        return
    with pytest.raises(CompileError, match=why.replace("(", r"\(").replace(")", r"\)")):
        compile_expression(ENVIRONMENT, text)


def test_a_refusal_points_into_the_text() -> None:
    with pytest.raises(CompileError) as raised:
        compile_expression(ENVIRONMENT, "1 +\n foo")
    assert str(raised.value) == "ERROR: <input>:2:2: undeclared reference to 'foo' (in container '')\n |  foo\n | .^"


def test_patches_are_messages() -> None:
    environment = Environment(PATCH_LIBRARY, frozenset({"object"}), patches=True)
    made = evaluate("Object{spec: Object.spec{replicas: object.spec.replicas + 1}}", environment).value
    assert isinstance(made, Message)
    assert made.fields["spec"].fields == {"replicas": 3}
    assert evaluate("JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b'), value: 1}.path", environment).value == "/a~1b"
    with pytest.raises(CompileError, match="undefined field 'foo'"):
        compile_expression(environment, "JSONPatch{foo: 1}")


def test_work_is_bounded_and_nothing_absorbs_that() -> None:
    """Kubernetes' limit per expression holds for any depth of loops, and ends an ``||``."""
    text = "items.all(a, items.all(b, items.all(c, items.all(d, true)))) || true"
    began = time.process_time()
    result = evaluate(text, items=list(range(1000)))
    assert result.error == "operation cancelled: actual cost limit exceeded"
    assert PER_CALL_LIMIT < result.cost < PER_CALL_LIMIT + 100
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!'.matches('^(a+)+$')",
        "'x'.replace('', '" + "y" * 50_000 + "').replace('', '" + "y" * 40_000 + "')",
        "lists.range(9223372036854775807)",
        "items.map(x, items.map(y, string(y))).flatten().join('--').split('').size()",
        "items.sort().distinct().size()",
    ],
)
def test_no_function_takes_long(text: str) -> None:
    began = time.process_time()
    evaluate(text, items=list(range(3000)))
    assert time.process_time() - began < 3


def test_the_cost_of_a_typical_policy_is_go_s() -> None:
    for text, cost in {
        "object.spec.running == false": 4,
        "object.spec.disks.all(d, d.name != 'x')": 16,
        "object.metadata.name.startsWith('a') && object.spec.replicas < 5": 4,
        "object.spec.disks.map(d, d.name)": 32,
    }.items():
        assert evaluate(text).cost == cost, text


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="()[]{}.?:+-*/%!&|<>=,'\"\\ abx01uobject_spec \n", max_size=40))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    try:
        program = compile_expression(ENVIRONMENT, text)
    except CompileError:
        return
    program.evaluate({"object": OBJECT})


@pytest.mark.parametrize(
    "text",
    [
        "items.all(a, object == {'a': items} || true)",
        "items.all(a, items == items.map(x, x) || true)",
        "items.all(a, '%s'.format([items]) != '')",
        "items.all(a, [items] in [[items.map(x, x)]])",
        "items.map(a, items).distinct().size() > 0",
    ],
)
def test_steps_that_cost_little_and_take_long_are_bounded_too(text: str) -> None:
    """Kubernetes' costs ignore the size of list elements, but the time does not."""
    began = time.process_time()
    result = evaluate(text, items=[{"a": [each]} for each in range(2000)])
    assert time.process_time() - began < 8
    assert result.failed or result.value is True
