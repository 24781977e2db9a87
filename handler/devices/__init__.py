"""Devices of the node for launcher pods.

``plugin`` offers ``/dev/kvm``, ``/dev/net/tun``, optionally ``/dev/vhost-vsock`` and those of ``macvtap`` to the kubelet (device plugin API
v1beta1). ``acceleration`` tests KVM with a guest (``trial`` is its program, ``kvm`` runs it in a child process), and ``detection`` repeats
the test. In an existing pod, ``ownership`` gives the device nodes, which the runtime makes root's with mode 0600, to the pod's user;
``passthrough`` prepares passed-through devices, and ``host_disks`` mounts files of the node. ``v1beta1`` is generated.
"""
