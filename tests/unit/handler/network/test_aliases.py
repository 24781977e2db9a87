from __future__ import annotations

import pytest

from apiserver.apis.virt.places import network
from handler.network import aliases
from handler.network.binding import Unsupported
from launcher.protocol.leases import Lease, Route

LEASE = Lease("10.77.0.2/24", network.BRIDGED_SERVER, (Route("0.0.0.0/0", "10.77.0.1"), Route("172.16.0.0/12")))
KEPT = ("10.77.0.2/24", "0.0.0.0/0>10.77.0.1", "172.16.0.0/12>")


def test_stored_lease_is_found_by_its_prefix() -> None:
    assert aliases.of_lease(LEASE) == KEPT
    made = aliases.text("ours", KEPT, "too long")
    assert made == "ours,10.77.0.2/24,0.0.0.0/0>10.77.0.1,172.16.0.0/12>"
    assert aliases.lease(aliases.parts("ours", made)) == LEASE
    for other in ("", "our", "ours2,10.77.0.2/24", "theirs,10.77.0.2/24"):
        assert aliases.parts("ours", other) == []


def test_a_link_without_an_ipv4_address_has_no_lease() -> None:
    assert aliases.of_lease(None) == ("",)
    assert aliases.lease(aliases.of_lease(None)) is None


@pytest.mark.parametrize("kept", [(), ("x",), ("10.77.0.2/33",), ("fd00::1/64",), (KEPT[0], "x"), (KEPT[0], "10.0.0.0/8>x")])
def test_malformed_lease_aliases_are_refused(kept: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        aliases.lease(kept)


def test_an_alias_is_as_long_as_the_kernel_takes() -> None:
    assert len(aliases.text("a", ("b" * 253,), "too long")) == 255
    with pytest.raises(Unsupported, match=r"^too long$"):
        aliases.text("a", ("b" * 254,), "too long")
