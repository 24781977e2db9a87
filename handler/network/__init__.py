"""The networks of a pod's guest: how interfaces are joined to the pod's links, and what nft lets the guest send.

::

    guest ── tap0 ── bridge k6t-eth0 (10.0.2.1, fd10:0:2::1, fixed MAC) ── nft: masquerade out, dnat in ── eth0 (the pod's addresses)
               ├ nft: only the guest's own addresses
               └ nft: requests of IPv6 to its router, and the answers ── tap-ipv6: virt-launcher

This is type masquerade. Others reach the guest at the pod's addresses. A migrated guest finds the same gateway. ``bridged``, ``passt``,
``attached`` and ``macvtap`` are other types.

A ``binding`` makes a script, ``plugin`` (of docs/plugins.md) runs it in the pod's network namespace, and ``setup`` calls it for each
interface.
"""
