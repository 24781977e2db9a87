"""Strategies, tables and subresources of virtual machines and migrations.

``virtualmachines`` is to be read first, then ``migrations`` and ``migration_policies``: what the machinery asks about each kind, with the
locks that its writes take. ``verbs`` has start, stop and their like. ``node_restriction`` and ``pod_restriction`` are admission plug-ins of
our own: what virt-handler may write, and which pods a status may name; the rules are those of :mod:`apiserver.apis.virt`. ``streams`` and
``reads`` (``domainxml``, ``guestinfo``) reach virt-handler by ``handlers`` and ``handler_locator``, unless its node is revoked
(``revoking``).

What a valid object is stands in :mod:`apiserver.apis.virt.v1alpha1`. Nothing here looks at a pod to answer a read of an object.
"""
