"""The guest's DHCP server (RFC 2131, RFC 2132): one client, one address and an infinite lease per bridge.

See docs/decisions/networks.md.
"""
