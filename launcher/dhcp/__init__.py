"""The guest's DHCP server (RFC 2131, RFC 2132): one client, one address and an infinite lease per bridge.

An exploit of it gains no more than one of QEMU, because both are in the guest's pod (docs/decisions/networks.md).
"""
