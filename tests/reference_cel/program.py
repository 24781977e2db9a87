"""The Go program, with JSON lines as protocol.

A request is ``{"expression": …, "variables": {"object": …, "params": …}}``; ``authorizer`` is a user who may get everything. An answer has
``compile`` or ``error`` (texts), or ``value`` (tagged with its type), and the ``cost``.
"""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Any, Self

import orjson

from tests.testbed import build

RECIPE = build.GoProgram("reference-cel", "0.36.3", (".",), module="tests/reference_cel/go")


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
        assert process.stdout is not None
        process.stdin.close()
        process.wait(timeout=10)
        process.stdout.close()

    def ask(self, expression: str, variables: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(orjson.dumps({"expression": expression, "variables": variables}) + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reference library ended with {process.wait(timeout=10)} on {expression!r}")
        answer: dict[str, Any] = orjson.loads(line)
        return answer
