"""nft matches for the guest's ports, the same for IPv4 and IPv6. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from apiserver.apis.virt.places import network
from handler.network.binding import Port


def matching(ports: Sequence[Port], protocol: str) -> tuple[str, ...]:
    """Return nft's match of a protocol's packets to these ports; empty without such ports."""
    numbers = sorted({each.port for each in ports if each.protocol == protocol})
    return (f"{protocol.lower()} dport {{ {', '.join(map(str, numbers))} }}",) if numbers else ()


def translating(matches: Iterable[str], guest: str) -> str:
    """Return the rules that translate matching packets to the guest's address."""
    return "".join(f"    {each} dnat to {guest}\n" for each in matches)


def kept_from_guest(ports: Sequence[Port] | None, client_port: int) -> str:
    """Return the rule that keeps DHCP answers from outside from the guest; empty unless all ports reach it (None).

    Matching packets stay in the pod, where no process receives them.
    """
    return f'    iifname "{network.UPLINK}" udp dport {client_port} accept\n' if ports is None else ""


def forwarding(ports: Sequence[Port] | None) -> str:
    """Return the nft chain that drops traffic to ports not translated to the guest; empty if ``ports`` is None."""
    return "" if ports is None else _OTHER_PORTS


_OTHER_PORTS: Final = f"""
  counter to_other_port {{}}
  chain forward {{
    type filter hook forward priority 0; policy accept;
    iifname "{network.UPLINK}" ct state established,related accept
    iifname "{network.UPLINK}" ct status dnat accept
    iifname "{network.UPLINK}" counter name to_other_port drop
  }}"""
