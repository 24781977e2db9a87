from __future__ import annotations

from launcher.hypervisor.occurrences import Occurrences


def test_the_firmwares_own_reset_belongs_to_the_reboot() -> None:
    reboots = Occurrences()
    assert reboots.of("a") == 0
    for now in (1.0, 1.2, 3.9):
        reboots.take("a", now)
    assert reboots.of("a") == 1

    reboots.take("a", 4.0)

    assert reboots.of("a") == 2
    assert reboots.of("b") == 0


def test_a_guest_that_resets_in_a_loop_is_counted_at_intervals() -> None:
    reboots = Occurrences()
    for hundredth in range(1000):
        reboots.take("a", hundredth / 100)
    assert reboots.of("a") == 4


def test_the_first_reset_counts_on_a_clock_that_has_just_begun() -> None:
    reboots = Occurrences()
    reboots.take("a", 0.0)
    assert reboots.of("a") == 1


def test_requested_reset_is_not_counted_and_a_later_one_is() -> None:
    reboots = Occurrences()
    reboots.take("a", 1.0)
    reboots.expect("a", 10.0)
    for now in (10.1, 10.4):
        reboots.take("a", now)
    assert reboots.of("a") == 1
    reboots.take("a", 13.0)
    assert reboots.of("a") == 2
    reboots.expect("b", 0.0)
    assert reboots.of("b") == 0
