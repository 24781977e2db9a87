from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

from apiserver.apis.meta.users import User
from apiserver.cel.compiler import compile_expression
from apiserver.cel.environment import Environment, Program, Result
from apiserver.cel.library.amounts import Quantity, Semver
from apiserver.cel.library.authz import Answer, Authorizer, Question, Undecided
from apiserver.cel.library.kubernetes import PATCH_LIBRARY
from apiserver.cel.library.networks import Cidr, Ip
from apiserver.cel.library.standard import double_text
from apiserver.cel.library.urls import Url
from apiserver.cel.values import NANOS, CompileError, Duration, Message, Optional, Timestamp, Type, UInt, from_key, type_name
from tests.reference_cel.program import Reference

ENVIRONMENT: Final = Environment(PATCH_LIBRARY, frozenset({"object", "params", "authorizer"}), patches=True)
Verdict = Literal["same", "cost", "unchecked", "known", "different"]
_OURS: Final = "unsupported key type: "
"""Our error for lists and maps as map keys."""
_THEIRS: Final = ("no such overload: double(int)", "no such overload: timestamp(int)", "no such overload: string(int)")
"""cel-go's errors about elements of sorted or flattened lists."""


@dataclass(frozen=True)
class Comparison:
    verdict: Verdict
    ours: Any
    theirs: Any


def compare(reference: Reference, expression: str, variables: dict[str, Any]) -> Comparison:
    """Evaluate an expression on both sides; return a verdict and both results.

    ``unchecked``: only Go's type checker refuses it; ``known``: an error of ``_OURS`` or ``_THEIRS``; ``cost``: only the costs differ.
    """
    theirs = reference.ask(expression, variables)
    try:
        program = compile_expression(ENVIRONMENT, expression)
    except CompileError as error:
        verdict: Verdict = "same" if "compile" in theirs else "different"
        return Comparison(verdict, {"compile": str(error)}, theirs)
    if "compile" in theirs or theirs.get("error", "").startswith(("panic", "internal error")):
        return Comparison("unchecked", None, theirs)
    result = evaluate(program, variables)
    ours: Any = {"error": result.error} if result.failed else {"value": encode(result.value)}
    if result.failed != ("error" in theirs) or (not result.failed and _sorted(ours["value"]) != _sorted(theirs["value"])):
        known = result.error.startswith(_OURS) or theirs.get("error", "").startswith(_THEIRS)
        return Comparison("known" if known else "different", ours, theirs)
    if not result.failed and result.cost != theirs["cost"]:
        return Comparison("cost", result.cost, theirs["cost"])
    return Comparison("same", ours, theirs)


def evaluate(program: Program, variables: dict[str, Any]) -> Result:
    answers: dict[Question, Answer] = {}
    while True:
        try:
            return program.evaluate({**variables, "authorizer": Authorizer(User("somebody"), answers)})
        except Undecided as undecided:
            verb = undecided.question.verb
            reason, error = {"get": ("getting is fine", ""), "fail": ("", "nobody knows")}.get(verb, ("no", ""))
            answers[undecided.question] = Answer(verb == "get", reason, error)


def encode(value: Any) -> Any:
    if isinstance(value, Message):
        return _message(value)
    if isinstance(value, Optional):
        return _tagged("some", encode(value.value)) if value.present else _tagged("none", None)
    writer = _WRITERS.get(type(value))
    tag, write = writer if writer is not None else ("opaque", type_name)
    return _tagged(tag, write(value))


def _message(value: Message) -> Any:
    if value.type_name == "JSONPatch":
        return _tagged("patch", f"{value.fields.get('op', '')} {value.fields.get('path', '')}")
    return _tagged("object", value.type_name + json.dumps(_plain(value), separators=(",", ":"), sort_keys=True))


_WRITERS: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    type(None): ("null", lambda _: None),
    bool: ("bool", bool),
    str: ("string", str),
    int: ("int", str),
    UInt: ("uint", lambda value: str(int(value))),
    float: ("double", double_text),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
    list: ("list", lambda value: [encode(each) for each in value]),
    dict: ("map", lambda value: [[encode(from_key(key)), encode(each)] for key, each in value.items()]),
    Duration: ("duration", lambda value: str(value.nanos)),
    Timestamp: ("timestamp", lambda value: f"{value.nanos // NANOS}.{value.nanos % NANOS:09d}"),
    Type: ("type", lambda value: value.name),
    Ip: ("ip", lambda value: str(value.address)),
    Cidr: ("cidr", lambda value: f"{value.address}/{value.bits}"),
    Quantity: ("quantity", lambda value: str(Decimal(value.amount.nanos).scaleb(-9))),
    Url: ("url", lambda value: value.text),
    Semver: ("semver", lambda value: f"{value.major}.{value.minor}.{value.patch}"),
}


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return {name: _plain(each) for name, each in value.fields.items()}
    return value


def _tagged(tag: str, value: Any) -> dict[str, Any]:
    return {"t": tag, "v": value}


def _sorted(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    tag, inner = value["t"], value["v"]
    if tag == "list":
        return tag, tuple(_sorted(each) for each in inner)
    if tag == "map":
        return tag, tuple(sorted(((_sorted(key), _sorted(each)) for key, each in inner), key=repr))
    if tag == "some":
        return tag, _sorted(inner)
    if tag == "double":
        return tag, inner if inner == "NaN" else repr(float(inner))
    if tag == "quantity":
        return tag, Decimal(inner)
    return tag, inner
