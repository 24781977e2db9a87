from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from launcher.hypervisor import facts
from launcher.hypervisor.port import GuestFacts, GuestInterface, Progress

TOLD = {
    "hostname": "web-1",
    "os.id": "debian",
    "os.name": "Debian GNU/Linux",
    "os.pretty-name": "Debian GNU/Linux 12 (bookworm)",
    "os.version-id": "12",
    "os.kernel-release": "6.1.0-56-cloud-amd64",
    "timezone.name": "UTC",
}
INTERFACES = {
    "lo": {"hwaddr": "00:00:00:00:00:00", "addrs": [{"addr": "127.0.0.1", "prefix": 8, "type": 0}]},
    "eth0": {
        "hwaddr": "52:54:00:00:00:0A",
        "addrs": [
            {"addr": "fd00::2", "prefix": 64, "type": 1},
            {"addr": "fe80::1", "prefix": 64, "type": 1},
            {"addr": "10.0.2.2", "prefix": 24, "type": 0},
            {"addr": "<script>", "prefix": 24, "type": 0},
        ],
    },
    "down": {"hwaddr": None, "addrs": None},
}


def test_facts_are_what_libvirt_reports_of_the_agent() -> None:
    told = facts.guest_facts(TOLD, INTERFACES)
    assert (told.hostname, told.os_id, told.os_name) == ("web-1", "debian", "Debian GNU/Linux 12 (bookworm)")
    assert (told.os_version, told.kernel_release, told.timezone) == ("12", "6.1.0-56-cloud-amd64", "UTC")
    assert told.interfaces == (GuestInterface("eth0", "52:54:00:00:00:0a", ("10.0.2.2", "fd00::2")), GuestInterface("down", "", ()))


@given(st.dictionaries(st.sampled_from(sorted(TOLD)), st.text() | st.none()), st.dictionaries(st.text(), st.just(INTERFACES["eth0"])))
def test_whatever_a_guest_says_is_bounded_and_printable(told: dict[str, Any], interfaces: dict[str, Any]) -> None:
    result = facts.guest_facts(told, interfaces)
    texts = [result.hostname, result.os_id, result.os_name, result.os_version, result.kernel_release, result.timezone]
    texts += [interface.device for interface in result.interfaces]
    assert all(len(text) <= facts.MAX_TEXT and text.isprintable() for text in texts)
    assert len(result.interfaces) <= facts.MAX_INTERFACES


def test_a_guest_without_answers_has_empty_facts() -> None:
    assert facts.guest_facts({}, None) == GuestFacts()


def test_figures_of_a_migration() -> None:
    stats = {
        "type": 2,
        "time_elapsed": 12,
        "memory_total": 3,
        "memory_processed": 2,
        "memory_remaining": 1,
        "memory_iteration": 4,
        "downtime": 5,
    }
    assert facts.progress(stats) == Progress(12, 3, 2, 1, 4, 5)
    assert facts.progress({"type": 0}) is None
