"""Documents are in plain English (docs/development/style.md).

A hit may be the best wording, so no single sentence fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
RATE: Final = 6.0
"""Allowed hits per 1,000 words."""
FEW: Final = 3
"""Allowed hits in a document of any length."""
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
    """Return a document without code, link addresses and table marks."""
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


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_is_plain(document: Path) -> None:
    hits, words = counted(document)

    assert hits <= FEW or rate(hits, words) <= RATE, HIT.findall(prose(document.read_text(encoding="utf-8")))


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
