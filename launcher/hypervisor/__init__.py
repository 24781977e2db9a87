"""The hypervisor of a pod. Only this package imports libvirt.

``port`` has the interface and its errors. ``connection`` implements it on a libvirtd, with ``translate`` (errors), ``conversion``
(statistics, parameters, XML), ``agents`` (guest agents), ``occurrences`` (counts of reboots and watchdogs) and ``disk_faults`` (errors that
did not pause the guest). ``eventloop`` runs libvirt's events in a thread, ``daemon`` configures a private session libvirtd,
``emulator`` has libvirt's cache of QEMU's capabilities. ``capabilities`` is a program that asks libvirt for this cache and the node's CPU
features, and ``node_capabilities`` writes them for virt-handler. ``tests/fakes/hypervisor.py`` is a fake;
``tests/contracts/test_hypervisor.py`` tests it and libvirt against the interface. Decisions belong into :mod:`launcher.main`.
"""
