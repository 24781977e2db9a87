"""The Go program, with JSON lines as protocol."""

from __future__ import annotations

import base64
import json
import pathlib
import subprocess
from types import TracebackType
from typing import Any, Self

from tests.testbed import build

RECIPE = build.GoProgram("encryption", "0.36.3", (".",), module="tests/encryption/go")


class EncryptionError(Exception):
    pass


class Kubernetes:
    def __init__(self, configuration: pathlib.Path) -> None:
        self._configuration = configuration

    def __enter__(self) -> Self:
        command = [str(RECIPE.binary()), str(self._configuration)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        first = self._line()
        if first != "ready":
            self.__exit__(None, None, None)
            raise EncryptionError(first)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate(timeout=10)

    def encrypt(self, resource: str, key: str, value: bytes) -> bytes:
        return base64.b64decode(self._ask("encrypt", resource, key, value)["value"])

    def decrypt(self, resource: str, key: str, stored: bytes) -> tuple[bytes, bool]:
        answer = self._ask("decrypt", resource, key, stored)
        return base64.b64decode(answer["value"] or ""), answer["stale"]

    def _ask(self, operation: str, resource: str, key: str, value: bytes) -> Any:
        request = {"Op": operation, "Resource": resource, "Key": key, "Value": base64.b64encode(value).decode()}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        if answer["error"]:
            raise EncryptionError(answer["error"])
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
