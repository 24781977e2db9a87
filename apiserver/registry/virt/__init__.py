"""Strategies, tables and subresources of virtual machines and migrations.

Start with ``virtualmachines``, then ``migrations`` and ``migration_policies``: the rules of each kind, with its locks.
``verbs`` has start, stop and so on. ``node_restriction`` and ``pod_restriction`` are admission plug-ins: what virt-handler
may write, and which pods a status may name, by rules of :mod:`apiserver.apis.virt`. ``streams`` and ``reads``
(``domainxml``, ``guestinfo``) use ``handlers`` and ``handler_locator`` to reach virt-handler, unless its node is revoked
(``revoking``).

:mod:`apiserver.apis.virt.v1alpha1` validates objects. Reads of objects never look at pods.
"""
