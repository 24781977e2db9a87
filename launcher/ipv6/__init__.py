"""The guest's router advertisements, its router's addresses, and its DHCPv6 (RFC 4861, RFC 8106, RFC 8415).

virt-handler makes a separate tap for it: nft forwards the guest's packets there, and packets written to it reach only the guest
(docs/decisions/networks.md).
"""
