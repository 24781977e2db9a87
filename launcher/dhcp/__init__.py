"""The guest's DHCP server (RFC 2131, RFC 2132): on each bridge one client, one address, a lease without end.

It stands in virt-launcher because its input is the guest's: the pod has no capabilities, no credentials, and nothing that is not the
guest's already, so whoever breaks it has what whoever breaks QEMU has. It lives and ends with the pod, needs no process of its own, and
goes on while virt-handler is down. ``message`` reads and writes packets, ``answers`` decides (both pure), ``lease`` finds out what to
offer, ``server`` has the socket. How many packets arrive at all is bounded by virt-handler's filter on the guest's tap.
"""
