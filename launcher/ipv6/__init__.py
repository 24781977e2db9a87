"""The guest's router advertisements, its router's addresses, and its DHCPv6 (RFC 4861, RFC 8106, RFC 8415).

It runs in virt-launcher for the reasons of ``launcher.dhcp``. The pod lacks the capability for raw sockets, so virt-handler makes a
separate tap. nft forwards the guest's packets to this tap, and packets written to it reach only the guest.
"""
