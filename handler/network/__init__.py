"""The guest's network inside its pod: ``masquerade``.

::

    guest ── tap0 ── bridge k6t-eth0 (10.0.2.1, fixed MAC) ── nft: masquerade out, dnat in ── eth0 (the pod's address)
               └ nft: only the guest's own addresses

The pod keeps its address, and others reach the guest by it; the guest is always 10.0.2.2 behind a gateway with a fixed MAC address, so
a guest that migrates finds the same neighbour in the other pod. virt-handler does all this from outside and enters only the network
namespace of the pod. A ``binding`` is the way in which one interface is joined, a pure function from what is wanted and what was observed
to a script; ``masquerade`` is one, as above, ``bridged`` another, in which the guest takes the pod's place, and ``attached`` that of
further networks; ``filters`` is what the first two tell nft, ``macs`` says the guests' addresses, ``namespaces`` runs programs there,
``setup`` ties them together. virt-launcher answers the guest's DHCP (``launcher.dhcp``): no program of virt-handler's reads what a guest
sends.
"""
