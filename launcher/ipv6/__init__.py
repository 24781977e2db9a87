"""The guest's router advertisements, the addresses of its router, and its DHCPv6 (RFC 4861, RFC 8106, RFC 8415).

It stands in virt-launcher for the reasons of ``launcher.dhcp``. A process of a pod cannot advertise a router, because a raw socket needs a
capability; so virt-handler gives it a tap of its own. What nft hands over from the guest's tap comes out of it, and what is written into
it comes to the guest and nowhere else. ``packets`` reads and writes frames, ``discovery`` and ``dhcpv6`` decide what is said (all pure),
``lease`` finds out what to tell (``settings``), ``server`` has the tap.
"""
