"""A pod's hypervisor. Only this package imports libvirt.

``port`` is the interface, ``connection`` implements it on a libvirtd. ``node_capabilities`` runs before any guest, for virt-handler.
"""
