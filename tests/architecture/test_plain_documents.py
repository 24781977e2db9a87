"""Prose and messages are in plain English (CONTRIBUTING.md).

A hit may be the best wording, so no single sentence fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
RATE: Final = 6.0
FEW: Final = 3
"""Hits in a document or package of any length."""
CEILINGS: Final = MappingProxyType(
    {
        "apiserver": 3.0,
        "apiserver/admission": 1.5,
        "apiserver/apis": 2.5,
        "apiserver/cel": 5.0,
        "apiserver/client": 6.0,
        "apiserver/endpoints": 4.5,
        "apiserver/kubectl": 5.0,
        "apiserver/registry": 4.0,
        "benchmarks": 3.0,
        "certs": 1.0,
        "controller": 3.5,
        "controller/reconcilers": 4.5,
        "docs": 3.0,
        "examples": 2.5,
        "handler": 3.5,
        "handler/devices": 5.5,
        "handler/network": 3.0,
        "handler/pods": 4.5,
        "handler/reconcilers": 4.0,
        "handler/relays": 2.5,
        "importer": 3.5,
        "launcher": 4.5,
        "launcher/domain": 3.5,
        "launcher/hypervisor": 5.5,
        "launcher/main": 4.5,
        "launcher/protocol": 4.5,
        "storage": 3.0,
        "tests": 4.0,
    }
)
"""Hits per 1,000 words of a package without those listed. Never raise one."""
SLACK: Final = 1.0
"""A ceiling further above its rate must fall."""
ALL_WORDS: Final = 220_000
TOPS: Final = ("apiserver", "benchmarks", "certs", "controller", "examples", "handler", "importer", "launcher", "storage", "tests")
MESSAGES: Final = 94
"""Hits in all messages."""
PROGRAMS: Final = ("apiserver", "certs", "controller", "handler", "importer", "launcher", "storage")
TOKENS: Final = re.compile(
    r"""(?P<string>[A-Za-z]{0,2}(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))"""
    r"|(?P<comment>#[^\n]*)|(?P<open>[\[({])|(?P<close>[])}])|(?P<line>(?<!\\)\n\s*)",
    re.DOTALL,
)
PATTERNS: Final = (
    r"nobody|somebody|anybody|everybody|whoever|who(?: |ever )(?:is|has|does|was|may)",
    r"whose|(?:of|by|to|from|in|with|on|for|after|beside|under|through) (?:which|whom)",
    r"(?:has|have) to|(?:is|are|was|were) to (?:be|have|go|run|do|make|take|say|tell|ask|come|get|stay|end|begin|start|move|wait)",
    r"(?:is|are|was|were|has|have|had|gets|makes|takes|asks) no(?! longer| more)",
    r"anew|beside|heed|in vain|mend(?:s|ed)?|thereof|where(?:of|in|by)|at hand|said|unsaid|of its own|by itself|of the like",
    r"(?:what|that) (?:is|are|was|has been) (?:said|told|asked|known|wanted|meant)",
)
HIT: Final = re.compile("|".join(rf"\b(?:{each})\b" for each in PATTERNS) + r"|\btoo(?=[,.;:)])", re.IGNORECASE)
RIDDLE: Final = re.compile(r"^(?:what|who|whose|whether|when|where|how|as|of|from|if) \b", re.IGNORECASE | re.MULTILINE)
"""A paragraph, docstring or comment that begins within a sentence."""
NO_PROSE: Final = re.compile(r"#\s*(?:type:|noqa|fmt:|!|pragma)")
WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")


def prose(text: str) -> str:
    return " ".join(re.sub(r"\]\([^)]*\)|\|", " ", re.sub("`[^`]*`", " ` ", text)).split())


def hits(text: str) -> list[str]:
    return HIT.findall(text) + RIDDLE.findall(text)


def rate(found: int, words: int) -> float:
    return 1000 * found / max(words, 1)


def paragraphs(document: str) -> str:
    lines = map(prose, re.sub(r"```.*?```", "", document, flags=re.DOTALL).splitlines())
    return re.sub(r"(?<!\n)\n(?!\n)", " ", "\n".join(lines))


def counted(text: str) -> tuple[int, int]:
    return len(hits(text)), len(WORD.findall(text))


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
                if not NO_PROSE.match(each[0]):
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
    return counted("\n".join(prose(re.sub("``|:[a-z]+:`", "`", each)) for each in pieces(module)))


@cache
def counts() -> dict[str, dict[str, tuple[int, int]]]:
    """Return hits and words by package and file."""
    code = {
        package: {str(path): counted_in_code(path.read_text(encoding="utf-8")) for path in paths} for package, paths in packages().items()
    }
    return {**code, "docs": {str(path): counted(paragraphs(path.read_text(encoding="utf-8"))) for path in documents()}}


@cache
def groups() -> dict[str, tuple[int, int]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for package, files in counts().items():
        found.setdefault(package if package in CEILINGS else package.split("/")[0], []).append(together(files))
    return {group: (sum(each[0] for each in parts), sum(each[1] for each in parts)) for group, parts in found.items()}


def together(files: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    return sum(found for found, _ in files.values()), sum(words for _, words in files.values())


def messages(tree: ast.AST) -> Iterator[str]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if not isinstance(node, ast.JoinedStr | ast.Constant):
            waiting += reversed([*ast.iter_child_nodes(node)])
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = " ".join(each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str))
        if len(re.findall(r"[a-z]{2,}", text)) >= 3:
            yield text


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_is_plain(document: Path) -> None:
    found, words = counts()["docs"][str(document)]

    assert found <= FEW or rate(found, words) <= RATE, hits(paragraphs(document.read_text(encoding="utf-8")))


@pytest.mark.parametrize("package", packages())
def test_docstrings_and_comments_of_a_package_are_plain(package: str) -> None:
    files = counts()[package]
    found, words = together(files)

    assert found <= FEW or rate(found, words) <= RATE, sorted(files, key=lambda path: files[path])[-3:]


def test_rates_of_packages_stay_below_their_ceilings() -> None:
    above = {group: round(rate(*each), 2) for group, each in groups().items() if rate(*each) > CEILINGS[group]}

    assert above == {}
    assert max(CEILINGS.values()) <= RATE


def test_ceilings_fall_with_the_rates_of_their_packages() -> None:
    loose = {group: round(rate(*groups()[group]), 2) for group, ceiling in CEILINGS.items() if ceiling > rate(*groups()[group]) + SLACK}

    assert loose == {}


def test_all_prose_together_is_short() -> None:
    assert sum(words for _, words in groups().values()) <= ALL_WORDS


def test_messages_are_plain() -> None:
    paths = [path for top in PROGRAMS for path in (ROOT / top).rglob("*.py") if "_pb2" not in path.name]
    found = [each for path in paths for each in messages(ast.parse(path.read_text(encoding="utf-8"))) if HIT.search(each)]

    assert len(found) <= MESSAGES, found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Nobody reads a node whose pod has no name.", 3),
        ("The pod that `whoever` [made](nobody.md) is gone.", 0),
        ("```\nnobody\n```\nIt has to wait, too.", 2),
        ("The lease is no longer valid.", 0),
        ("How long it waits\nif asked.\n\nAs in etcd.", 2),
    ],
)
def test_hits_are_counted_in_prose_alone(text: str, expected: int) -> None:
    assert counted(paragraphs(text))[0] == expected


def test_hits_are_counted_in_docstrings_and_comments_alone() -> None:
    module = '''"""A pod whose node is gone."""
LIMIT = "nobody"
"""Nobody reads ``nobody``."""  # it has to wait
def nobody(said: str = "# nobody", *, asked: str = 'nobody "') -> None:
    """Return, too."""  # noqa: X123 nobody
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
