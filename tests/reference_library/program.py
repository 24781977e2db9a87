"""The Go program, with JSON lines as protocol.

A request is ``{"op": …}`` with, by ``op``,

- ``register``: ``schema`` (a name), ``group``, ``kind``, ``hub``, ``versions``, ``schemas``, ``empty``, ``renamed`` (see ``go/fields.go``);
- ``update``, ``apply``: ``schema``, ``version``, ``subresource``, ``ignored``, ``live`` (null: new), ``new``, ``by``, ``force``;
- ``strategic-diff``: ``schema``, ``by`` (the component), ``live``, ``new``: the patch that kubectl would send;
- ``yaml``: ``text``; the answer's ``object`` is the JSON that Kubernetes' servers read;
- ``merge-patch``, ``json-patch``, ``strategic-patch``: ``live``, ``patch``, and for the last ``schema`` and ``by`` (the component).

An answer has ``object``, ``managedFields``, or ``error`` (and ``status``), and its second (``before``, ``after``).
"""

from __future__ import annotations

import dataclasses
import subprocess
from types import TracebackType
from typing import Any, Self

import orjson

from tests.testbed import build

RECIPE = build.GoProgram("reference-library", "0.36.3", (".",), module="tests/reference_library/go")


@dataclasses.dataclass(frozen=True)
class Answer:
    object: Any
    managed_fields: list[dict[str, Any]]
    error: str
    status: dict[str, Any]
    before: int
    after: int


class Reference:
    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([RECIPE.binary()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()

    def ask(self, **request: Any) -> Answer:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(orjson.dumps(request) + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reference library ended with {process.wait(timeout=10)}")
        said = orjson.loads(line)
        return Answer(
            said.get("object"),
            said.get("managedFields") or [],
            said.get("error", ""),
            said.get("status") or {},
            said["before"],
            said["after"],
        )
