from __future__ import annotations

import pytest

from apiserver.apis.virt.v1alpha1 import defaults, validation
from benchmarks import gauges, imports
from benchmarks.gauges import MIB
from benchmarks.imports import Sample


def test_import_report_compares_with_a_plain_download() -> None:
    samples = [Sample(each, 80.0, 2.0, 512 * MIB) for each in (8.0, 4.0, 100.0)]
    assert imports.report({"raw": samples}, 1024) == {
        "image_mib": 1024,
        "images": {
            "raw": {
                "imports": 3,
                "served_mib": 512.0,
                "seconds": 8.0,
                "mib_per_second": 128.0,
                "peak_memory_mib": 80.0,
                "plain_seconds": 2.0,
                "ratio": 4.0,
            }
        },
    }


def test_the_download_says_when_it_began_and_ended() -> None:
    assert imports.plain_seconds("begun 100.25 ended 104.75\n") == 4.5
    assert imports.plain_seconds("begun 1.00 ended 1.00\n") > 0
    with pytest.raises(gauges.NotMeasured, match="can't connect"):
        imports.plain_seconds("wget: can't connect to remote host")


def test_the_machine_is_valid() -> None:
    vm = imports.machine("bench-import", "http://10.244.0.5:8080/image-qcow2", "node1")
    vm["metadata"]["namespace"] = "bench"
    defaults.default_virtual_machine(vm)
    assert validation.validate_virtual_machine(vm) == []
