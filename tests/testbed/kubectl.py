"""kubectl for the cluster of ``KUBECONFIG`` if set, else for ours."""

import contextlib
import contextvars
import json
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.testbed import build, layout, progress

_own_only: contextvars.ContextVar[bool] = contextvars.ContextVar("own_only", default=False)


@contextlib.contextmanager
def own_cluster() -> Iterator[None]:
    """Let :func:`environment` select our cluster during the block, so code that builds it does not touch another one."""
    token = _own_only.set(True)
    try:
        yield
    finally:
        _own_only.reset(token)


def is_own_cluster() -> bool:
    return environment()["KUBECONFIG"] == str(layout.kubeconfig())


def environment() -> dict[str, str]:
    chosen = None if _own_only.get() else os.environ.get("KUBECONFIG")
    return {"KUBECONFIG": chosen or str(layout.kubeconfig())}


def program() -> pathlib.Path:
    return build.program("kubernetes", "kubectl")


def run(*arguments: str, stdin: str | None = None, timeout_seconds: float = 300) -> None:
    progress.run([program(), *arguments], environment=environment(), stdin=stdin, timeout_seconds=timeout_seconds)


def output(*arguments: str, timeout_seconds: float = 120) -> str:
    return progress.output_of([program(), *arguments], environment=environment(), timeout_seconds=timeout_seconds)


def get(*arguments: str) -> Any:
    return json.loads(output("get", *arguments, "-o", "json"))


def show(*arguments: str) -> None:
    progress.say(f"$ kubectl {' '.join(arguments)}")
    subprocess.run([program(), *arguments], check=False, env={**os.environ, **environment()})


def apply(manifest: str) -> None:
    run("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=manifest)
