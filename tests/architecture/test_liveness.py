from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.test_structure import ROOT, parsed

JUDGE = "controller/reconcilers/pods/liveness.py"
EVIDENCE = {"is_over": "pod_state", "whole": "unreachable", "of_kubelet": "unreachable", "off": "unreachable"}
"""Attributes with evidence, and the objects that have them."""


def read(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in EVIDENCE and ast.unparse(node.value).split(".")[-1] == EVIDENCE[node.attr]:
            yield node.attr
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".pod_state"):
            yield from (each.name for each in node.names if each.name in EVIDENCE)


def test_only_one_module_judges_whether_a_pod_may_run() -> None:
    found = {str(path.relative_to(ROOT)): set(read(tree)) for path, tree in parsed(rf"\b(?:{'|'.join(EVIDENCE)})\b")}
    assert {path: evidence for path, evidence in found.items() if evidence} == {JUDGE: set(EVIDENCE)}


def test_reading_the_evidence_is_noticed() -> None:
    for text in (
        "pod_state.is_over(pod)",
        "seen.unreachable.whole",
        "seen.evidence.unreachable.of_kubelet",
        "from x.pod_state import is_over",
    ):
        assert list(read(ast.parse(text)))
    for text in ("liveness.may_run(pod)", "machine.is_over(1)", "seen.evidence.unreachable.missing"):
        assert not list(read(ast.parse(text)))
