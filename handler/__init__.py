"""virt-handler, the agent of a node: devices for pods, networks and streams of guests, and the owner of their status.

::

    agent ─┬─ reconcilers   what to do about the guests and migrations of this node (plans are pure)
           ├─ pods          from a pod's uid to its launcher: sockets, processes, the wire
           ├─ devices       kvm, tun, vsock and macvtaps for the kubelet; whether KVM works; device nodes inside pods
           ├─ network       bindings: bridge, tap, nft in a pod's network namespace; the guest's frames are filtered there
           ├─ storage       disks that storage plugins set up
           ├─ plugins       executables of the node: called and judged; what they added is recorded, and taken away
           ├─ probes        questions to guests, and what follows from the answers
           ├─ cpu           labels of this Node for the processors that guests can have
           ├─ identity      this node's key and certificate; whom to believe
           ├─ relays        the bytes of live migrations, over mTLS
           └─ streams       consoles and displays for virt-api, over mTLS

It remembers nothing that it could not ask for again: virt-launcher tells everything when it is connected to, the API holds the rest. It
may be killed at any time, and guests, their consoles' sockets and their networks stay.

What it is given on a node, and what for:

========================================= ================================================================================
``hostPID``                               process ids of launchers (SO_PEERCRED), their root, cgroup and network namespace
privileged: device cgroup                 open /dev/kvm (trial guest) and /dev/net/tun (tap devices, health); block devices
                                          of claims are changed without being opened
privileged: SYS_ADMIN, NET_ADMIN          enter a pod's network namespace; bridge, tap, nft there
privileged: SYS_PTRACE                    /proc/PID/root and /proc/PID/ns of processes of another user
privileged: CHOWN, FOWNER, DAC_OVERRIDE   device nodes and migration sockets for uid 107; run directories
privileged: a writable /proc/sys          forwarding, ip_unprivileged_port_start and settings of IPv6 in a pod's network namespace
hostPath ``<kubelet>/pods``               run directories of launcher pods (read and write: migration sockets)
hostPath ``<kubelet>/device-plugins``     the kubelet's registration socket and ours
hostPath ``/dev``                         device nodes that appear after the start of the pod
hostPath of plugins, if there are any     the executables, read only: ``/usr/local/lib/kubevirt/plugins``
``/run/kubevirt-handler`` (may be empty)  key and certificate of this node (``tls``); what plugins added (``plugins``); what its
                                          processors can do, written by the init container (``cpu``)
========================================= ================================================================================

It needs no host network. What it may do in the cluster is in ``handler/rbac.md``, line by line.

Programs in its image: ``nsenter`` (util-linux), ``sh``, ``ip``, ``nft``, ``openssl``. None of them reads what a guest sends.
"""
