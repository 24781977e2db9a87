"""virt-handler, a node's agent: devices, networks, streams and status of guests.

::

    agent ─┬─ reconcilers   decides about guests and migrations (plans are pure)
           ├─ pods          a pod's launcher: sockets, process, protocol
           ├─ devices       device plugins for the kubelet; KVM test; device nodes in pods
           ├─ network       bridge, tap, nft in a pod's network namespace; filters of frames
           ├─ storage       disks that storage plugins set up
           ├─ plugins       the node's executables for networks and storage
           ├─ probes        probes of guests
           ├─ cpu           CPU labels of this Node
           ├─ identity      this node's certificate; trust in others
           ├─ relays        data of live migrations
           └─ streams       consoles and displays for virt-api

It may be killed at any time: virt-launcher and the API have all state, and guests, their console sockets and networks continue.

Its rights on a node (no host network); ``handler/rbac.md`` has those in the cluster:

========================================= ================================================================================
``hostPID``                               process ids of launchers (SO_PEERCRED), their root, cgroup and network namespace
privileged: device cgroup                 open /dev/kvm and /dev/net/tun (no claim's device); lists of other pods' devices
privileged: SYS_ADMIN, NET_ADMIN          bridge, tap, nft in a pod's network namespace
privileged: SYS_PTRACE                    /proc/PID/root and /proc/PID/ns of processes of another user
privileged: CHOWN, FOWNER, DAC_OVERRIDE   device nodes and migration sockets for uid 107; run directories
privileged: a writable /proc/sys          forwarding, ip_unprivileged_port_start and settings of IPv6 in a pod's network namespace
hostPath ``<kubelet>/pods``               run directories of launcher pods (read and write: migration sockets)
hostPath ``<kubelet>/device-plugins``     the kubelet's registration socket and ours
hostPath ``/dev``                         device nodes that appear after the pod's start
hostPath of plugins, if any               the executables, read only: ``/usr/local/lib/kubevirt/plugins``
``/run/kubevirt-handler`` (may be empty)  this node's certificate (``tls``); records of plugins (``plugins``); libvirt's
                                          capabilities from the init container (``capabilities``)
========================================= ================================================================================

No system program that it runs reads a guest's data.
"""
