"""The hypervisor of a pod. Only this package imports libvirt.

``port`` is the interface, ``connection`` implements it on a libvirtd. ``capabilities`` and ``node_capabilities`` run before any guest, for
virt-handler. ``tests/contracts/test_hypervisor.py`` tests ``connection`` and the fake in ``tests/fakes/hypervisor.py``. Decisions belong
into :mod:`launcher.main`.
"""
