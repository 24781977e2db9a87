"""The guest's router advertisements, its router's addresses, and its DHCPv6 (RFC 4861, RFC 8106, RFC 8415).

nft forwards the guest's packets to a separate tap, and packets written to it reach only the guest (docs/decisions/networks.md).
"""
