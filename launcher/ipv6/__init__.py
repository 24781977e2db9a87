"""The guest's router advertisements, its router's addresses, and its DHCPv6 (RFC 4861, RFC 8106, RFC 8415).

It runs in virt-launcher for the reasons of ``launcher.dhcp``. Raw sockets need a capability, so a process of the pod cannot advertise a
router; virt-handler therefore makes a separate tap for it. nft forwards the guest's packets to this tap, and packets written to it reach
only the guest. ``packets`` reads and writes frames, ``discovery`` and ``dhcpv6`` decide the answers (all pure), ``lease`` collects the
``settings``, ``server`` has the tap.
"""
