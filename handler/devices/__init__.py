"""Devices of the node for launcher pods: offers to the kubelet, a test of KVM, and preparation in existing pods."""
