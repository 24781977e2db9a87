"""The current step, its duration, and the log to read after a failure."""

import contextlib
import contextvars
import os
import pathlib
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from tests.testbed import estimate, layout

_LAST_LINES = 20
_TICK_SECONDS = 15.0
_log: contextvars.ContextVar[pathlib.Path | None] = contextvars.ContextVar("log", default=None)
_printing = threading.Lock()
_courses: list[estimate.Course] = []


class StepFailed(Exception):
    """A step failed; the message names the step, the reason and the log."""


def say(text: str) -> None:
    with _printing:
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def expecting(seconds: Mapping[str, float]) -> Iterator[None]:
    """Show the remaining time in every line printed in the block; ``seconds``: recorded times by step (:mod:`.estimate`)."""
    _courses.append(estimate.Course(seconds))
    try:
        yield
    finally:
        _courses.pop()


def _left() -> str:
    return f" ({_courses[-1].describe()})" if _courses else ""


@contextlib.contextmanager
def step(title: str) -> Iterator[pathlib.Path]:
    """Print a step's begin, a line every quarter of a minute, and its end with the duration, to stderr; yield its log's path.

    An Exception in the block becomes StepFailed.
    """
    log = layout.logs() / (re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] + ".step.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    began = time.monotonic()
    done = threading.Event()

    def tick() -> None:
        while not done.wait(_TICK_SECONDS):
            say(f"  … {title}: {time.monotonic() - began:.0f} s{_left()}")

    for course in _courses:
        course.begin(title)
    say(f"  ▸ {title}")
    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    token = _log.set(log)
    try:
        yield log
    except BaseException as error:
        say(f"  ✗ {title}: failed after {time.monotonic() - began:.1f} s")
        if isinstance(error, StepFailed) or not isinstance(error, Exception):
            raise
        raise StepFailed(f"{title}: {error}") from error
    else:
        for course in _courses:
            course.end(title)
        say(f"  ✓ {title}: {time.monotonic() - began:.1f} s{_left()}")
    finally:
        done.set()
        _log.reset(token)


def last_lines(log: pathlib.Path, count: int = _LAST_LINES) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()[-count:]
    except OSError as error:
        return f"    (no log: {error})"
    return "\n".join(f"    {line}" for line in lines)


def run(
    arguments: Sequence[str | os.PathLike[str]],
    *,
    environment: Mapping[str, str] | None = None,
    directory: pathlib.Path | None = None,
    stdin: str | None = None,
    timeout_seconds: float = 1800,
) -> None:
    """Run a program to its end; its output goes to the step's log. StepFailed if it is missing, fails or takes too long.

    ``environment`` is added to ours.
    """
    words = [os.fspath(argument) for argument in arguments]
    log = _log.get() or layout.logs() / "commands.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as output:
        output.write(f"$ {shlex.join(words)}\n")
        output.flush()
        try:
            result = subprocess.run(
                words,
                check=False,
                env={**os.environ, **(environment or {})},
                cwd=directory,
                input=stdin,
                stdin=None if stdin is not None else subprocess.DEVNULL,
                text=True,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout_seconds,
            )
        except subprocess.TimeoutExpired:
            raise StepFailed(f"{words[0]} did not end within {timeout_seconds:.0f} s; log {log}:\n{last_lines(log)}") from None
        except FileNotFoundError:
            raise StepFailed(f"the program {words[0]} is not installed") from None
    if result.returncode:
        raise StepFailed(f"{words[0]} ended with status {result.returncode}; log {log}:\n{last_lines(log)}")


def output_of(
    arguments: Sequence[str | os.PathLike[str]], *, environment: Mapping[str, str] | None = None, timeout_seconds: float = 120
) -> str:
    words = [os.fspath(argument) for argument in arguments]
    try:
        result = subprocess.run(
            words,
            check=False,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired:
        raise StepFailed(f"{shlex.join(words)} did not end within {timeout_seconds:.0f} s") from None
    except FileNotFoundError:
        raise StepFailed(f"the program {words[0]} is not installed") from None
    if result.returncode:
        raise StepFailed(f"{shlex.join(words)} ended with status {result.returncode}: {result.stderr.strip()[-2000:]}")
    return result.stdout
