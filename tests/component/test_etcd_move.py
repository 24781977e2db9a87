from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from apiserver.kubectl import __main__ as entry
from tests.fakes import kubectl_nodes
from tests.fakes.etcd_server import etcd_binary
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
MARK = '#!/bin/sh\nset -e\ntest -e "$1/data/log"\nbasename "$1" >> "$1/data/log"\n'
"""Each start appends the node to the data, so missing lines reveal older data."""


def volume(host: str = "a", **spec: Any) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
    return {
        "metadata": {"name": "kubevirt-etcd-0", "uid": "1", "annotations": {"pv.kubernetes.io/bound-by-controller": "yes", "kept": "so"}},
        "spec": {
            "capacity": {"storage": "4Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "kubevirt-etcd-node-disk",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "kubevirt",
                "name": "data-kubevirt-etcd-0",
                "uid": "1",
            },
            "hostPath": {"path": "/var/lib/kubevirt-etcd", "type": "Directory"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            **spec,
        },
    }


class Nodes:
    def __init__(self, directory: Path, start: str, stop: str = "#!/bin/sh\n") -> None:
        self.directory = directory
        (directory / "bin").mkdir(parents=True)
        code = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.fakes import kubectl_nodes as it; sys.exit(it.main(sys.argv[1:]))"
        )
        for path, text in (("bin/kubectl", f"#!{sys.executable} -SE\n{code}\n"), ("start", start), ("stop", stop)):
            (directory / path).write_text(text)
            (directory / path).chmod(0o755)
        (directory / "a" / "data").mkdir(parents=True)
        (directory / "b").mkdir()
        template = {"spec": {"containers": [{"name": "etcd", "image": "etcd:1", "imagePullPolicy": "Never"}]}}
        objects = {f"node/{each}": {"metadata": {"name": each, "labels": {"kubernetes.io/hostname": each}}} for each in "ab"}
        self.put(
            {
                **objects,
                "apiservice/v1alpha1.kubevirt.io": {"spec": {"service": {"namespace": "kubevirt"}}},
                "statefulset/kubevirt-etcd": {
                    "metadata": {"name": "kubevirt-etcd", "namespace": "kubevirt"},
                    "spec": {"template": template},
                },
                "persistentvolumeclaim/data-kubevirt-etcd-0": {"spec": {"volumeName": "kubevirt-etcd-0"}},
                "persistentvolume/kubevirt-etcd-0": volume(),
            }
        )

    def put(self, objects: Mapping[str, Any]) -> None:
        (self.directory / "cluster.json").write_text(json.dumps(objects))

    def objects(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "cluster.json").read_text())
        return found

    def change(self, key: str, **fields: Any) -> None:
        objects = self.objects()
        objects[key] |= fields
        self.put(objects)

    def start(self) -> None:
        self.call("scale", "statefulset/kubevirt-etcd", "--replicas=1")

    def call(self, *arguments: str) -> None:
        subprocess.run([self.directory / "bin" / "kubectl", *arguments], check=True)

    def calls(self) -> list[str]:
        return (self.directory / "calls").read_text().splitlines()

    def cut(self, when: str) -> None:
        (self.directory / "cut").write_text(when)

    @property
    def running(self) -> str:
        place = self.directory / "running"
        return place.read_text() if place.exists() else ""

    def log(self) -> list[str]:
        return (self.directory / self.running / "data" / "log").read_text().split()


def nodes_with_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = Nodes(tmp_path / "nodes", MARK)
    (made.directory / "a" / "data" / "log").touch()
    (made.directory / "a" / "data" / "wal").mkdir(mode=0o700)
    (made.directory / "a" / "data" / "wal" / "0.wal").write_bytes(os.urandom(3 << 20))
    use(made, monkeypatch)
    made.start()
    return made


def use(made: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{made.directory / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECTL_NODES", str(made.directory))


def test_etcd_goes_on_with_its_data_on_the_other_node_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    made = nodes_with_marks(tmp_path, monkeypatch)
    assert entry.main(["move-etcd", "--to", "b"]) == 0
    assert (made.running, made.log()) == ("b", ["a", "b"])
    assert "etcd runs on node b; it was unavailable for" in capsys.readouterr().out
    objects = made.objects()
    assert kubectl_nodes.host_of(objects["persistentvolume/kubevirt-etcd-0"]) == "b"
    new = objects["persistentvolume/kubevirt-etcd-0"]
    assert (new["metadata"]["annotations"], "uid" in new["spec"]["claimRef"]) == ({"kept": "so"}, False)
    assert objects["statefulset/kubevirt-etcd"]["metadata"]["annotations"] == {}
    assert not [each for each in objects if each.startswith("pod/")]
    left = [each.name for each in (made.directory / "a").iterdir()]
    assert len(left) == 1
    assert left[0].startswith("data.moved-")

    assert entry.main(["move-etcd", "--to", "b"]) == 0
    assert made.log() == ["a", "b"]
    assert entry.main(["move-etcd", "--to", "a"]) == 0
    assert (made.running, made.log()) == ("a", ["a", "b", "a"])


CUTS = (
    "after create",
    "after patch",
    "after scale statefulset/kubevirt-etcd",
    "before wait pod/kubevirt-etcd-0",
    "after tar -xf",
    "before mv moving",
    "after mv moving",
    "after delete persistentvolumeclaim",
    "after delete persistentvolume ",
    "before rollout",
    "before moved-",
)


@pytest.mark.sample(8, "cuts of kubectl virt move-etcd")
@pytest.mark.parametrize("cut", CUTS)
def test_failed_move_leaves_one_complete_etcd_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
    made = nodes_with_marks(tmp_path, monkeypatch)
    made.cut(cut)
    first = entry.main(["move-etcd", "--to", "b"])
    assert not (made.directory / "cut").exists(), "there was no such call"
    assert (made.directory / "a" / "data").exists() != any((made.directory / "a").glob("data.moved-*"))
    if first:
        assert made.running in ("a", "b", "")
        if made.running == "a":
            assert set(made.log()) == {"a"}
            assert made.objects()["statefulset/kubevirt-etcd"]["metadata"].get("annotations", {}) == {}
    else:
        assert "moved-" in cut, "the data at the source is not etcd's any more"
    before = made.log() if made.running else None
    assert entry.main(["move-etcd", "--to", "b"]) == 0
    assert made.running == "b"
    log = made.log()
    assert log[-1] == "b"
    assert log[0] == "a"
    assert before is None or log[: len(before)] == before


@pytest.mark.sample(8, "cuts of kubectl virt move-etcd")
@pytest.mark.parametrize(
    ("at", "started"),
    [
        ("scale statefulset/kubevirt-etcd", False),
        ("tar -xf", True),
        ("mv moving", False),
        ("mv moving", True),
        ("delete persistentvolume ", False),
        ("rollout", True),
    ],
)
def test_a_command_that_is_killed_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, *, started: bool
) -> None:
    made = nodes_with_marks(tmp_path, monkeypatch)
    made.cut(f"kill {at}")
    assert subprocess.run([sys.executable, "-m", "apiserver.kubectl", "move-etcd", "--to", "b"], cwd=ROOT, check=False).returncode == -9
    if started:
        made.start()
    before = made.log() if made.running else ["a"]
    assert entry.main(["move-etcd", "--to", "b"]) == 0
    log = made.log()
    assert (made.running, log[: len(before)], log[-1]) == ("b", before, "b")


@pytest.mark.parametrize(
    ("key", "fields", "said"),
    [
        ("node/b", {"spec": {"unschedulable": True}}, "node b is cordoned"),
        ("persistentvolume/kubevirt-etcd-0", volume(persistentVolumeReclaimPolicy="Delete"), "to Retain"),
        ("persistentvolume/kubevirt-etcd-0", volume(hostPath=None, nodeAffinity=None), "kubectl delete pod kubevirt-etcd-0"),
        ("persistentvolume/kubevirt-etcd-0", volume(hostPath=None), "back up etcd"),
        ("persistentvolume/kubevirt-etcd-0", volume(nodeAffinity=None), "names no node"),
    ],
)
def test_impossible_move_is_reported_before_anything_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, key: str, fields: dict[str, Any], said: str
) -> None:
    made = nodes_with_marks(tmp_path, monkeypatch)
    made.change(key, **fields)
    assert entry.main(["move-etcd", "--to", "b"]) == 1
    assert said in capsys.readouterr().err
    assert made.running == "a"
    assert not [each for each in made.calls() if "replicas=0" in each or each.startswith("create")]


def test_data_of_another_etcd_on_the_target_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    made = nodes_with_marks(tmp_path, monkeypatch)
    (made.directory / "b" / "data").mkdir()
    (made.directory / "b" / "data" / "theirs").touch()
    assert entry.main(["move-etcd", "--to", "b"]) == 1
    assert "already has data of another etcd" in capsys.readouterr().err
    assert (made.directory / "b" / "data" / "theirs").exists()
    assert (made.running, made.log()) == ("a", ["a"])
    assert entry.main(["move-etcd", "--to", "c"]) == 1
    assert "node c not found" in capsys.readouterr().err


def test_moved_etcd_has_every_key_and_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port, peer = free_port(), free_port()
    urls = f"--listen-client-urls=http://127.0.0.1:{port} --advertise-client-urls=http://127.0.0.1:{port}"
    peers = f"--listen-peer-urls=http://127.0.0.1:{peer} --initial-advertise-peer-urls=http://127.0.0.1:{peer}"
    flags = f"--name=m {urls} {peers} --initial-cluster=m=http://127.0.0.1:{peer} --log-level=error"
    pid = tmp_path / "pid"
    start = f'#!/bin/sh\n{etcd_binary()} --data-dir="$1/data" {flags} >{tmp_path}/log 2>&1 </dev/null &\necho $! > {pid}\n'
    stop = f"#!/bin/sh\npid=$(cat {pid})\nkill -TERM $pid\nwhile kill -0 $pid 2>/dev/null; do sleep 0.05; done\n"
    made = Nodes(tmp_path / "nodes", start, stop)
    use(made, monkeypatch)
    (made.directory / "a" / "data").rmdir()

    def ask(path: str, body: Mapping[str, str]) -> dict[str, Any]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as response:
            found: dict[str, Any] = json.load(response)
            return found

    def everything() -> dict[str, Any]:
        key = base64.b64encode(b"\0").decode()
        return ask("kv/range", {"key": key, "range_end": key})

    def until_ready() -> None:
        subprocess.run(
            ["sh", "-c", f"until wget -qO- http://127.0.0.1:{port}/health >/dev/null 2>&1; do sleep 0.05; done"], check=True, timeout=60
        )

    made.start()
    try:
        until_ready()
        for number in range(200):
            key = base64.b64encode(b"%d" % number).decode()
            ask("kv/put", {"key": key, "value": key})
        before = everything()
        assert before["count"] == "200"
        assert entry.main(["move-etcd", "--to", "b"]) == 0
        until_ready()
        after = everything()
        assert after["kvs"] == before["kvs"]
        assert {key: after["header"][key] for key in ("cluster_id", "member_id", "revision")} == {
            key: before["header"][key] for key in ("cluster_id", "member_id", "revision")
        }
    finally:
        subprocess.run([made.directory / "stop"], check=True, timeout=60)
