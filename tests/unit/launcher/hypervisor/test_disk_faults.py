from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from launcher.hypervisor import conversion
from launcher.hypervisor.disk_faults import NEWS_SECONDS, DiskFaults
from launcher.hypervisor.port import NO_SPACE, DiskFault

TARGETS = {"virtio-disk0": "vda", "ua-b": "vdb"}


def test_last_error_of_each_disk_is_kept_by_domain_and_target() -> None:
    faults = DiskFaults()
    assert faults.of("a", TARGETS) == ()
    faults.take("a", "ua-b", "", ignored=False, now=1.0)
    faults.take("a", "virtio-disk0", "", ignored=False, now=2.0)
    faults.take("a", "virtio-disk0", "enospc", ignored=True, now=3.0)
    faults.take("a", "unplugged", "", ignored=False, now=3.0)
    assert faults.of("a", TARGETS) == (DiskFault("vda", NO_SPACE, True, 3.0), DiskFault("vdb", "I/O error", False, 1.0))
    assert faults.of("b", TARGETS) == ()


@pytest.mark.parametrize(
    ("reason", "ignored", "later", "worth"),
    [
        ("", False, NEWS_SECONDS - 0.1, False),
        ("", False, NEWS_SECONDS, True),
        ("enospc", False, 0.0, True),
        ("", True, 0.0, True),
        ("esomething", False, 0.0, False),
    ],
)
def test_the_same_error_again_is_worth_a_look_only_now_and_then(reason: str, ignored: bool, later: float, worth: bool) -> None:
    faults = DiskFaults()
    assert faults.take("a", "ua-b", "", ignored=False, now=0.0)
    assert faults.take("a", "ua-b", reason, ignored=ignored, now=later) is worth
    assert [each.time for each in faults.of("a", TARGETS)] == [later]


def test_endless_disk_errors_cause_occasional_looks() -> None:
    faults = DiskFaults()
    looks = [faults.take("a", "ua-b", "", ignored=False, now=tenth / 10) for tenth in range(1000)]
    assert sum(looks) == 100 / NEWS_SECONDS


def test_error_during_the_collection_of_others_is_harmless() -> None:
    faults = DiskFaults()

    class Targets(dict[str, str]):
        """Fails on each look-up, as in the thread of libvirt's events."""

        def __contains__(self, alias: object) -> bool:
            faults.take("a", f"another beside {alias}", "", ignored=False, now=2.0)
            return super().__contains__(alias)

    faults.take("a", "ua-b", "", ignored=False, now=1.0)
    assert faults.of("a", Targets(TARGETS)) == (DiskFault("vdb", "I/O error", False, 1.0),)


def test_error_without_an_alias_belongs_to_no_disk() -> None:
    faults = DiskFaults()
    assert not faults.take("a", "", "enospc", ignored=False, now=0.0)
    assert faults.of("a", {"": "vda"}) == ()


def test_disks_are_found_by_alias_while_the_domain_is_active() -> None:
    disks = "<disk><target dev='vda'/><alias name='virtio-disk0'/></disk><disk><alias name='ua-b'/><target dev='vdb'/></disk>"
    off = "<disk><target dev='vdc'/></disk><disk><alias name='ua-c'/></disk>"
    assert conversion.targets_by_alias(ET.fromstring(f"<domain><devices>{disks}{off}</devices></domain>")) == TARGETS
