"""Labels of this Node for the CPU models and features available to KVM guests.

``capabilities`` reads libvirt's data, which an init container wrote (:mod:`launcher.hypervisor.node_capabilities`); ``publishing`` writes
the labels.
"""
