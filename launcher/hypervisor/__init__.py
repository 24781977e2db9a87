"""The hypervisor of a pod. The only package that imports libvirt.

``port`` is the contract and its errors, ``connection`` keeps it over a libvirtd, ``eventloop`` is the thread in which libvirt's events
arrive, ``daemon`` says how a private session libvirtd is configured. ``connection`` leaves to others what they can say alone: ``translate``
libvirt's errors as ours, ``conversion`` its figures, parameters and XML as our values, ``agents`` the channels of guests' agents,
``occurrences`` what is counted (reboots, watchdogs), ``disk_faults`` errors that stopped no guest. ``capabilities`` is a program of its
own, for the node's labels. A double with the same promises is ``tests/fakes/hypervisor.py``; ``tests/contracts/test_hypervisor.py`` holds
all of them to the contract. Nothing here decides: that is :mod:`launcher.main`.
"""
