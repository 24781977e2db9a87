"""Strategies, tables and subresources of virtual machines and migrations.

Start with ``virtualmachines`` and ``migrations``. ``node_restriction`` and ``pod_restriction`` are admission plug-ins. ``streams`` and
``reads`` reach virt-handler by ``handlers``.

:mod:`apiserver.apis.virt.v1alpha1` validates objects. Reads of objects never look at pods.
"""
