"""The networks of a pod's guest: how each interface is joined to a link of the pod, and what nft lets the guest send.

::

    guest ── tap0 ── bridge k6t-eth0 (10.0.2.1, fd10:0:2::1, fixed MAC) ── nft: masquerade out, dnat in ── eth0 (the pod's addresses)
               ├ nft: only the guest's own addresses
               └ nft: questions of IPv6 to its router, and the answers ── tap-ipv6: virt-launcher

The pod keeps its addresses, and others reach the guest by them; the guest is always 10.0.2.2 and fd10:0:2::2 (each where the pod has one
of the family) behind a gateway with a fixed MAC address, so a guest that migrates finds the same neighbour in the other pod. That is type
masquerade; the modules of the others begin with pictures of theirs.

====================  =================================================================================================================
binding               what a binding is: a pure function from what is wanted and what was observed to a script
bindings              which binding joins an interface, by its type and network
masquerade            the pod's own network: the guest is behind the pod's addresses, as above
bridged               the pod's own network: the guest has the pod's place
passt                 the pod's own network: a process of the pod makes the guest's connections
attached, addressed   a further network; the address that its IPAM gave
scripts, aliases      what those have in common: commands, and the text that keeps what a link had
filters, filters6     what nft is told: of IPv4 and Ethernet, of IPv6
portmatches           the ports that are the guest's, in nft's words
departed              what nft is told once the guest has moved on: connections are passed on to the other pod
ipv6                  which links have IPv6
macs                  the guests' MAC addresses
plugin                the executable that carries a binding out, of the form that docs/plugins.md describes
results               the documents between virt-handler and network plugins, ours and those of third parties
namespaces            programs that run in a pod's network namespace
setup                 what ties them together: all interfaces of a machine, one after the other
====================  =================================================================================================================

virt-handler does all this from outside and enters only the network namespace of the pod. virt-launcher answers the guest's DHCP and
advertises its router (``launcher.dhcp``, ``launcher.ipv6``): no program of virt-handler's reads what a guest sends.
"""
