"""What guests with KVM can have of this node's processors, as labels on its Node.

``capabilities`` reads what libvirt said (:mod:`launcher.hypervisor.capabilities` asked it, in this pod, before this process was started),
``publishing`` writes the labels.
"""
