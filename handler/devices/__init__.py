"""Devices of the node for launcher pods.

``plugin`` offers ``/dev/kvm`` and ``/dev/net/tun`` to the kubelet (device plugin API v1beta1), ``acceleration`` finds out whether KVM can
run a guest here at all (by running one: ``trial`` is its program, ``kvm`` runs it in a process of its own), ``detection`` asks again where
it cannot yet, and ``ownership`` gives the device nodes inside a pod to the pod's user: the runtime makes them root's, 0600.
"""
