"""Devices of the node for launcher pods.

``plugin`` offers ``/dev/kvm``, ``/dev/net/tun``, and where the operator wants them ``/dev/vhost-vsock`` and those of ``macvtap`` to the
kubelet (device plugin API v1beta1). ``acceleration`` finds out whether KVM can run a guest here at all (by running one: ``trial`` is its
program, ``kvm`` runs it in a process of its own), and ``detection`` asks again where it cannot yet. In a pod that is there, ``ownership``
gives the device nodes to the pod's user: the runtime makes them root's, 0600; ``passthrough`` gives what a guest's devices of the node
need beside themselves, and ``host_disks`` mounts files of the node. ``v1beta1`` is generated.
"""
