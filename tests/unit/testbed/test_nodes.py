import os
from pathlib import Path

import pytest

from tests.testbed import layout, nodeinit, nodes, processes


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> layout.Node:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path))
    node = layout.NODES[0]
    node.directory.mkdir(parents=True)
    return node


def test_an_earlier_first_process_does_not_make_the_node_ready(node: layout.Node) -> None:
    first = processes.Identity(7, start_ticks=100)

    (node.directory / "ready").write_text("99")

    assert not nodes.has_reported(node, first)
    (node.directory / "ready").write_text("100")
    assert nodes.has_reported(node, first)


def test_the_first_process_reports_its_own_start() -> None:
    ours = next(identity for identity in processes.everyone() if identity.pid == os.getpid())

    assert nodeinit.started() == str(ours.start_ticks)
