"""Prose and messages are in plain English (docs/development/style.md).

A hit may be the best wording, so no single sentence fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
RATE: Final = 6.0
FEW: Final = 3
"""Hits in a document or package of any length."""
TOPS: Final = ("apiserver", "benchmarks", "certs", "controller", "examples", "handler", "importer", "launcher", "storage", "tests")
MESSAGES: Final = 90
"""Hits in all messages; "X has no Y" is often the best wording."""
PROGRAMS: Final = ("apiserver", "certs", "controller", "handler", "importer", "launcher", "storage")
TOKENS: Final = re.compile(
    r"""(?P<string>[A-Za-z]{0,2}(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))"""
    r"|(?P<comment>#[^\n]*)|(?P<open>[\[({])|(?P<close>[])}])|(?P<line>(?<!\\)\n\s*)",
    re.DOTALL,
)
PATTERNS: Final = (
    r"nobody|somebody|anybody|everybody|whoever",
    r"whose|(?:of|by|to|from|in|with|on|for|after|under|through) (?:which|whom)",
    r"(?:has|have) to|(?:is|are|was|were) to (?:be|have|go|do|make|take|come|get|stay|end|begin)",
    r"(?:is|are|was|were|has|have|had|gets|takes) no(?! longer| more)",
    r"anew|beside|heed|in vain|mend(?:s|ed)?",
    r"(?:what|that) (?:is|are|was) (?:said|told|asked|known|wanted)",
)
HIT: Final = re.compile("|".join(rf"\b(?:{each})\b" for each in PATTERNS) + r"|\btoo(?=[,.;:)])", re.IGNORECASE)
WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")


def prose(text: str) -> str:
    text = re.sub(r"^```.*?^```", " ", text, flags=re.DOTALL | re.MULTILINE)
    return " ".join(re.sub(r"`[^`]*`|\]\([^)]*\)|\|", " ", text).split())


def rate(hits: int, words: int) -> float:
    return 1000 * hits / max(words, 1)


def counted(document: Path) -> tuple[int, int]:
    text = prose(document.read_text(encoding="utf-8"))
    return len(HIT.findall(text)), len(WORD.findall(text))


def documents() -> list[Path]:
    folders = ("docs", "examples", "apiserver", "controller", "handler", "launcher")
    return sorted([*ROOT.glob("*.md"), *(each for folder in folders for each in (ROOT / folder).rglob("*.md"))])


@cache
def packages() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            if "_pb2" not in path.name:
                found.setdefault("/".join(path.relative_to(ROOT).parent.parts[:2]), []).append(path)
    return found


def pieces(module: str) -> Iterator[str]:
    """Yield the comments and string statements in a module's text."""
    depth = start = 0
    for each in TOKENS.finditer(module):
        match each.lastgroup:
            case "comment":
                yield each[0].lstrip("#")
            case "string" if not depth and each.start() == start:
                yield each[0].lstrip("r").strip('"')
            case "open":
                depth += 1
            case "close":
                depth -= 1
            case "line":
                start = each.end()
            case _:
                continue


def counted_in_code(module: str) -> tuple[int, int]:
    text = prose("\n\n".join(pieces(module)).replace("``", "`"))
    return len(HIT.findall(text)), len(WORD.findall(text))


def messages(tree: ast.AST) -> Iterator[str]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = " ".join(each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str))
        if len(re.findall(r"[a-z]{2,}", text)) >= 3:
            yield text
        if not isinstance(node, ast.JoinedStr):
            waiting += reversed([*ast.iter_child_nodes(node)])


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_is_plain(document: Path) -> None:
    hits, words = counted(document)

    assert hits <= FEW or rate(hits, words) <= RATE, HIT.findall(prose(document.read_text(encoding="utf-8")))


@pytest.mark.parametrize("package", packages())
def test_docstrings_and_comments_of_a_package_are_plain(package: str) -> None:
    counts = {path: counted_in_code(path.read_text(encoding="utf-8")) for path in packages()[package]}
    hits, words = (sum(each) for each in zip(*counts.values(), strict=True))
    worst = sorted(counts, key=lambda path: counts[path][0])

    assert hits <= FEW or rate(hits, words) <= RATE, worst[-3:]


def test_messages_are_plain() -> None:
    paths = [path for top in PROGRAMS for path in (ROOT / top).rglob("*.py") if "_pb2" not in path.name]
    found = [each for path in paths for each in messages(ast.parse(path.read_text(encoding="utf-8"))) if HIT.search(each)]

    assert len(found) <= MESSAGES, found


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("Nobody reads a node whose pod has no name.", 3),
        ("The pod that `whoever` [made](nobody.md) is gone.", 0),
        ("```\nnobody\n```\nIt has to wait, too.", 2),
        ("The lease is no longer valid.", 0),
    ],
)
def test_hits_are_counted_in_prose_alone(text: str, hits: int) -> None:
    assert len(HIT.findall(prose(text))) == hits


def test_hits_are_counted_in_docstrings_and_comments_alone() -> None:
    module = '''"""A pod whose node is gone."""
LIMIT = "nobody"
"""Nobody reads ``nobody``."""  # it has to wait
def nobody(said: str = "# nobody", *, asked: str = 'nobody "') -> None:
    """Return, too."""
    return [
        "nobody",
    ]
'''

    assert counted_in_code(module) == (4, 14)


def test_messages_are_strings_outside_docstrings() -> None:
    module = '''"""Nobody reads it, whoever asks."""
LIMIT = "nobody"
raise ValueError(f"pod {name} is no pod of {vm}", "nobody has it")
'''

    assert list(messages(ast.parse(module))) == ["pod   is no pod of ", "nobody has it"]
