"""A pod's hypervisor. Only this package imports libvirt.

``port`` is the interface, ``connection`` implements it on a libvirtd, as the fake in ``tests/fakes/hypervisor.py`` does.
``node_capabilities`` runs before any guest, for virt-handler. Decisions belong into :mod:`launcher.main`.
"""
