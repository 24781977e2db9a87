"""Devices of the node for launcher pods.

``plugin`` offers devices to the kubelet, ``detection`` decides about KVM by a trial guest, and the other modules prepare devices and files
in existing pods.
"""
