from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.testbed import layout, project_images

GO = "tests/testbed/go/etcd"
SOURCE = {f"kubevirt-build/{process.name}-source" for process in project_images.PROCESSES}
BELOW = {f"kubevirt-build/{process.name}-below" for process in project_images.PROCESSES} | SOURCE
IMAGES = {f"kubevirt/{name}" for name in project_images.NAMES}
OF_PROCESSES = {f"kubevirt/{process.name}" for process in project_images.PROCESSES}
ETCD = {"program etcd", "kubevirt/etcd"}
VIRT_API = {"kubevirt/virt-api", "kubevirt-build/virt-api-source", "kubevirt-build/virt-api-below"}
CHANGES = {
    "images/install-packages.sh": OF_PROCESSES | BELOW,
    "images/virt-api/Containerfile": VIRT_API,
    "images/virt-api/packages.lock": VIRT_API,
    "images/etcd/rootfs/start.sh": {"kubevirt/etcd"},
    "images/testguest/tiny/kernel.c": {"kubevirt/testguest"},
    **{f"{GO}/{name}": ETCD for name in ("go.mod", "go.sum", "main.go", "own.patch")},
    "tests/testbed/source_layer.py": OF_PROCESSES | SOURCE,
    "tests/testbed/oci.py": OF_PROCESSES | SOURCE,
    "tests/testbed/bill.py": IMAGES | BELOW,
    "tests/testbed/project_images.py": IMAGES | BELOW,
}
SETTINGS = {"-trimpath": "-race", '"CGO_ENABLED": "0"': '"CGO_ENABLED": "1"'}
PROGRAM = """
import importlib, json, pathlib, sys
from tests.testbed import build, compiling, project_images

def digests():
    importlib.reload(compiling)
    images = project_images.all_images()
    found = {each.reference: each.digest for image in images for each in image.chain}
    return {"program etcd": build.PROGRAMS["etcd"].digest()} | {name[10:-4]: digest for name, digest in found.items()}

before = digests()
for path, old, new in json.loads(sys.argv[1]):
    text = pathlib.Path(path).read_text()
    assert old in text
    pathlib.Path(path).write_text(text.replace(old, new) if old else text + new)
    print(json.dumps([name for name, digest in digests().items() if digest != before[name]]))
    pathlib.Path(path).write_text(text)
"""


def changed(repository: Path, changes: list[tuple[str, str, str]]) -> list[set[str]]:
    shutil.copytree(layout.SOURCES, repository / "tests/testbed", ignore=lambda _, names: {each for each in names if "." not in each})
    for path in ("tests/__init__.py", *(path for path, old, _ in changes if not old)):
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).touch()
    command = [sys.executable, "-B", "-c", PROGRAM, json.dumps(changes)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


def users(path: str) -> set[str]:
    found = {str(each) for each in (Path(path), *Path(path).parents)}
    return {f"kubevirt/{process.name}" for process in project_images.PROCESSES if found & set(process.sources)}


def test_another_byte_gives_what_is_made_of_it_another_digest(tmp_path: Path) -> None:
    sources = {source for process in project_images.PROCESSES for source in process.sources}
    files = {source if source.endswith(".py") else f"{source}/deep/data.json" for source in sources}
    expected = {path: users(path) for path in files} | CHANGES
    found = changed(
        tmp_path, [*((path, "", " ") for path in expected), *(("tests/testbed/compiling.py", *each) for each in SETTINGS.items())]
    )
    assert dict(zip((*expected, *SETTINGS), found, strict=True)) == expected | dict.fromkeys(SETTINGS, ETCD)
