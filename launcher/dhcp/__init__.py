"""The guest's DHCP server (RFC 2131, RFC 2132): one client, one address and an infinite lease per bridge.

It runs in virt-launcher because it parses the guest's input. The pod has no capabilities, no credentials, and only data of the guest, so an
exploit gains no more than an exploit of QEMU. It works while virt-handler is down. virt-handler's filter on the guest's tap limits the
packet rate.
"""
