"""virt-handler, the agent of a node: devices of pods, networks and streams of guests, and their status.

::

    agent ─┬─ reconcilers   decides about guests and migrations of this node (plans are pure)
           ├─ pods          from a pod's uid to its launcher: sockets, processes, protocol
           ├─ devices       kvm, tun, vsock and macvtaps for the kubelet; tests KVM; device nodes inside pods
           ├─ network       bindings: bridge, tap, nft in a pod's network namespace; filters of the guest's frames
           ├─ storage       disks that storage plugins set up
           ├─ plugins       executables of the node: calls, checks of answers, records of additions, deletion
           ├─ probes        probes of guests and their verdicts
           ├─ cpu           labels of this Node for the processors available to guests
           ├─ identity      this node's key and certificate; trust in others
           ├─ relays        the data of live migrations, over mTLS
           └─ streams       consoles and displays for virt-api, over mTLS

All its state can be restored: virt-launcher sends everything to a new connection, and the API has the rest. It may be killed at any time;
guests, their console sockets and networks continue.

Its rights on a node:

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
hostPath of plugins, if any               the executables, read only: ``/usr/local/lib/kubevirt/plugins``
``/run/kubevirt-handler`` (may be empty)  key and certificate of this node (``tls``); records of plugins (``plugins``); what libvirt
                                          knows here, written by the init container (``capabilities``)
========================================= ================================================================================

It needs no host network. ``handler/rbac.md`` lists its rights in the cluster.

Programs in its image: ``nsenter`` (util-linux), ``sh``, ``ip``, ``nft``, ``openssl``. None of them reads what a guest sends.
"""
