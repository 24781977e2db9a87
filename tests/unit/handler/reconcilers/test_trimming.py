from __future__ import annotations

from handler.reconcilers.trimming import trim_machine, trim_migration

SCHEDULING = ("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints")
LONG = {"x": "y" * 1000}
METADATA = {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7", "generation": 2, "finalizers": ["f"]}


def test_trimmed_machine_keeps_all_but_unread_metadata() -> None:
    vm = {
        "metadata": {**METADATA, "annotations": LONG, "labels": LONG, "managedFields": [LONG]},
        "spec": {"domain": {}, **dict.fromkeys(SCHEDULING, LONG)},
        "status": {"attempt": 1},
    }
    assert trim_machine(vm) == {"metadata": METADATA, "spec": {"domain": {}}, "status": {"attempt": 1}}
    assert trim_machine({}) == {}
    assert trim_machine({"metadata": METADATA, "spec": "?"}) == {"metadata": METADATA, "spec": "?"}


def test_trimmed_migration_keeps_its_selector() -> None:
    spec = {"selector": {"name": "vm", "other": "x"}, "nodeSelector": LONG}
    migration = {"metadata": {**METADATA, "annotations": LONG}, "spec": spec, "status": {"phase": "Running"}}
    assert trim_migration(migration) == {"metadata": METADATA, "spec": {"selector": {"name": "vm"}}, "status": {"phase": "Running"}}
    assert trim_migration({"metadata": METADATA, "spec": "?"}) == {"metadata": METADATA, "spec": {"selector": {"name": None}}}
