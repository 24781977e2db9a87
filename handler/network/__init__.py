"""The networks of a pod's guest: how interfaces are joined to the pod's links, and what nft lets the guest send.

::

    guest ── tap0 ── bridge k6t-eth0 (10.0.2.1, fd10:0:2::1, fixed MAC) ── nft: masquerade out, dnat in ── eth0 (the pod's addresses)
               ├ nft: only the guest's own addresses
               └ nft: requests of IPv6 to its router, and the answers ── tap-ipv6: virt-launcher

This is type masquerade. Others reach the guest at the pod's addresses. The guest is always 10.0.2.2 and fd10:0:2::2 (as far as the pod has
these families) behind a gateway with a fixed MAC address, so a migrated guest finds the same neighbour. ``bridged``, ``passt``,
``attached`` and ``macvtap`` are the other types.

A ``binding`` is a pure function from the wanted and the observed state to a script. ``plugin`` applies it, as an executable of the form in
docs/plugins.md, and ``setup`` calls it for each interface of a machine.

virt-handler enters only the pod's network namespace. virt-launcher answers the guest's DHCP and advertises its router (``launcher.dhcp``,
``launcher.ipv6``).
"""
