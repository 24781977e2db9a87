"""Labels of this Node for the CPU models and features that guests with KVM can have on it.

``capabilities`` reads what libvirt said (:mod:`launcher.hypervisor.capabilities` asked it, in this pod, before this process was started),
``publishing`` writes the labels.
"""
