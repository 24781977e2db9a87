"""Prohibitions of CONTRIBUTING.md that ruff and mypy do not check.

Places are named by package, module and function, so they may move.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.test_structure import PACKAGES, ROOT, parsed

TASKS: Final = {
    "apiserver: connection.Connection._ask": "the connection's own, made by what the event loop calls, and cancelled when the client goes",
}
BROAD: Final = {
    # Boundaries named in CONTRIBUTING.md.
    "apiserver: chain.Chain._bounded": "the request boundary: one Status, whatever it was",
    "apiserver: connection.Connection._answer": "the request boundary's own faults: the client must see that the answer is incomplete",
    "apiserver: informer.Informer._sound": "an informer's delivery: of an object that cannot be trimmed",
    "apiserver: store.Store._call": "an informer's delivery: to one of those who listen",
    "apiserver: store.Store._values": "an informer's delivery: of an object that one index cannot take",
    "apiserver: commands.exit_code": "main of the plugin: a line instead of a page",
    "controller: reconciling.Controller._reconcile": "the reconcile loop",
    "controller: recorder.Recorder.run": "one event",
    "handler: attesting._answered": "one voter's answer",
    "handler: deleting.Deleter._delete": "one record of a plugin",
    "handler: incoming.Incoming._serve": "one connection of a migration's relays",
    "handler: killer.Killer.run": "the loop of the thread that ends guests",
    "handler: links.Links._keep": "the loop of one launcher's link",
    "handler: prober.Prober._ask": "one guest's probe",
    "handler: running.Relays._carry": "one migration's relays",
    "launcher: __main__._to_the_end": "main",
    "launcher: wire.Server._answer": "the request boundary of the launcher: a fault of ours must not end what holds the guest",
    # The error belongs to other code, and is passed to it or counts against it.
    "apiserver: access.load": "the library for kubeconfigs raises what it likes for a bad file",
    "apiserver: audiences._Scope.concerned": "a field that cannot be read is told by the predicate of each watch that asks for it",
    "apiserver: connections.Connections.send": "told again unless the request may be repeated on another connection",
    "apiserver: window.Window._tell": "of one watch's predicate or receiver: that watch raises it, the others go on",
    "controller: evictions.EvictionServer._answer": "any other answer than 429 ends a drain",
    "controller: evictions.EvictionServer._is_authenticated": "an unknown client is untrusted",
    "handler: hanging._carry_out": "handed from a thread to whoever waits for it",
}

_BROAD: Final = {"Exception", "BaseException"}
_GROUP: Final = "asyncio.TaskGroup"
_MARK: Final = r"#\s*(?:noqa\b(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?|type:\s*ignore(?:\[[\w\s,-]*\])?)"
_IGNORE: Final = re.compile(rf"{_MARK}(.*)")
_BARE: Final = re.compile(rf"{_MARK}[^\w\n]*$", re.MULTILINE)
"""Also matches in strings, but takes a hundredth of tokenize's time."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def walk(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        yield ".".join(names), child
        yield from walk(child, (*names, child.name) if isinstance(child, Definition) else names)


def nodes(tree: ast.Module, path: Path) -> Iterator[tuple[str, ast.AST]]:
    package = path.relative_to(ROOT).parts[0]
    return ((f"{package}: {path.stem}.{where}", node) for where, node in walk(tree, ()))


def tasks_without_group(tree: ast.Module, path: Path) -> Iterator[str]:
    groups = set(task_groups(tree))
    for where, node in nodes(tree, path):
        if isinstance(node, ast.Attribute) and node.attr == "create_task" and ast.unparse(node.value) not in groups:
            yield where


def task_groups(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.AsyncWith(items=items):
                yield from (ast.unparse(each.optional_vars) for each in items if each.optional_vars and _makes_one(each.context_expr))
            case ast.arg(arg=name, annotation=ast.expr() as annotation) if _GROUP in ast.unparse(annotation):
                yield name
            case ast.AnnAssign(target=target, annotation=annotation) if _GROUP in ast.unparse(annotation):
                yield ast.unparse(target)
                yield f"self.{ast.unparse(target)}"
            case ast.Assign(targets=[target], value=value) if _makes_one(value):
                yield ast.unparse(target)


def _makes_one(value: ast.expr) -> bool:
    text = ast.unparse(value)
    return text == f"{_GROUP}()" or (text.startswith("await ") and text.endswith(f".enter_async_context({_GROUP}())"))


def broad_handlers(tree: ast.Module, path: Path) -> Iterator[str]:
    for where, node in nodes(tree, path):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _raises_again(node):
            yield where


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    listed = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(each is None or (isinstance(each, ast.Name) and each.id in _BROAD) for each in listed)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    leaves = any(isinstance(each, ast.Return | ast.Continue | ast.Break) for each in ast.walk(handler))
    return isinstance(last, ast.Raise) and last.exc is None and not leaves


def both_ends(tree: ast.Module, path: Path) -> Iterator[str]:
    for where, node in nodes(tree, path):
        if isinstance(node, ast.ClassDef) and {"start", "stop"} <= {each.name for each in node.body if isinstance(each, Definition)}:
            yield f"{where}{node.name}"


def test_tasks_are_held_by_groups() -> None:
    assert {each for path, tree in parsed("create_task") for each in tasks_without_group(tree, path)} == set(TASKS)


def test_only_boundaries_catch_whatever_goes_wrong() -> None:
    assert {each for path, tree in parsed(r"\bexcept\W*:|\b(?:Base)?Exception\b") for each in broad_handlers(tree, path)} == set(BROAD)


def test_no_class_has_start_and_stop() -> None:
    assert not [each for path, tree in parsed(r"def stop\b") for each in both_ends(tree, path)]


def test_an_ignore_has_its_code_and_its_reason() -> None:
    files = [path for name in (*PACKAGES, "tests", "benchmarks", "examples") for path in (ROOT / name).rglob("*.py")]

    assert not [f"{path.relative_to(ROOT)}:{line}" for path in files if "_pb2" not in path.name for line in bare_ignores(path)]


def bare_ignores(path: Path) -> Iterator[int]:
    if not _BARE.search(path.read_text(encoding="utf-8")):
        return
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT and (found := _IGNORE.match(token.string)) and not re.search(r"\w", found[1]):
                yield token.start[0]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("async def f():\n async with asyncio.TaskGroup() as g:\n  g.create_task(x())", []),
        ("async def f():\n g = await s.enter_async_context(asyncio.TaskGroup())\n g.create_task(x())", []),
        ("async def f(g: asyncio.TaskGroup):\n g.create_task(x())", []),
        ("async def f():\n loop.create_task(x())", ["certs: m.f"]),
        ("class A:\n async def f(self):\n  self.create_task(x())", ["certs: m.A.f"]),
        ("async def f():\n async with open() as g:\n  g.create_task(x())", ["certs: m.f"]),
    ],
)
def test_a_task_without_a_group_is_found(source: str, found: list[str]) -> None:
    assert list(tasks_without_group(ast.parse(source), ROOT / "certs" / "m.py")) == found


@pytest.mark.parametrize(
    ("handler", "is_one"),
    [
        ("except Exception:\n  pass", True),
        ("except:\n  pass", True),
        ("except (OSError, BaseException):\n  pass", True),
        ("except BaseException:\n  close()\n  raise", False),
        ("except BaseException:\n  if a: return\n  raise", True),
        ("except Exception as e:\n  raise ValueError from e", True),
        ("except (OSError, ValueError):\n  pass", False),
    ],
)
def test_a_broad_handler_is_found(handler: str, is_one: bool) -> None:
    tree = ast.parse(f"def f():\n try:\n  x()\n {handler}")

    assert list(broad_handlers(tree, ROOT / "certs" / "m.py")) == ["certs: m.f"] * is_one


@pytest.mark.parametrize(
    ("comment", "lines"),
    [
        ("# noqa: S101", [1]),
        ("# noqa: S101, ARG002  ", [1]),
        ("# noqa: S101 - it is true", []),
        ("# noqa: S101  it is true", []),
        ("# type: ignore[misc]", [1]),
        ("# type: ignore[misc]  # a class has one", []),
        ("# nothing", []),
    ],
)
def test_an_ignore_without_a_reason_is_found(comment: str, lines: list[int], tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(f"x = 1  {comment}\n")

    assert list(bare_ignores(file)) == lines
