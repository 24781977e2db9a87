"""The networks of a pod's guest: how interfaces are joined to the pod's links, and what nft lets the guest send.

::

    guest ── tap0 ── bridge k6t-eth0 (10.0.2.1, fd10:0:2::1, fixed MAC) ── nft: masquerade out, dnat in ── eth0 (the pod's addresses)
               ├ nft: only the guest's own addresses
               └ nft: questions of IPv6 to its router, and the answers ── tap-ipv6: virt-launcher

The pod keeps its addresses, at which others reach the guest. The guest is always 10.0.2.2 and fd10:0:2::2 (as far as the pod has these
families) behind a gateway with a fixed MAC address, so a migrated guest finds the same neighbour. This is type masquerade; the modules of
other types have their own pictures.

====================  ============================================================================================================
binding               a binding: a pure function from the wanted and the observed state to a script
bindings              the binding of an interface, by its type and network
masquerade            on the pod's own network: the guest is behind the pod's addresses, as above
bridged               on the pod's own network: the guest takes the pod's place
passt                 on the pod's own network: passt relays the guest's connections
attached, addressed   on a further network; the address from its IPAM
scripts, aliases      common parts: commands, and the text that stores a link's former settings
filters, filters6     nft rules for IPv4 and Ethernet, and for IPv6
portmatches           nft matches of the guest's ports
removed               what removes a card that the guest released
departed              nft rules after the guest has migrated: forward connections to the other pod
ipv6                  IPv6 settings of links
macs                  the guests' MAC addresses
plugin                the executable that applies a binding, in the form of docs/plugins.md
results               requests to network plugins, ours and third parties', and their results
namespaces            programs that run in a pod's network namespace
setup                 combines them: all interfaces of a machine, one after the other
====================  ============================================================================================================

virt-handler works from outside and enters only the pod's network namespace. virt-launcher answers the guest's DHCP and advertises its
router (``launcher.dhcp``, ``launcher.ipv6``). No program of virt-handler reads what a guest sends.
"""
