"""Strategies, tables and subresources of virtual machines and migrations.

Start with ``virtualmachines``, then ``migrations`` and ``migration_policies``: each kind's rules and locks. ``verbs`` has
start, stop and so on. ``node_restriction`` and ``pod_restriction`` are admission plug-ins with rules of
:mod:`apiserver.apis.virt`: what virt-handler may write, and which pods a status may name. ``streams`` and ``reads``
(``domainxml``, ``guestinfo``) reach virt-handler by ``handlers`` and ``handler_locator``, unless its node is revoked
(``revoking``).

:mod:`apiserver.apis.virt.v1alpha1` validates objects. Reads of objects never look at pods.
"""
