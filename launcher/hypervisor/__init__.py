"""The hypervisor of a pod. The only package that imports libvirt.

``port`` is the contract and its errors, ``connection`` keeps it over a libvirtd, ``eventloop`` is the thread in which libvirt's events
arrive, ``daemon`` says how a private session libvirtd is configured. A double with the same promises is ``tests/fakes/hypervisor.py``;
``tests/contracts/test_hypervisor.py`` holds all of them to the contract.
"""
