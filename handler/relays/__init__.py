"""Relays for live migrations from pod to pod over mTLS.

::

    source pod                virt-handler (source)         virt-handler (target)          target pod
    migration/libvirt.sock ─▶ ``outgoing`` ═══ TLS, 8445 ═══▶ ``incoming`` ─▶ libvirt/libvirt-sock
    migration/data.sock    ─▶     connections of each channel    ─▶ migration/data.sock (QEMU's)
    migration/disks.sock   ─▶     one for each disk of the pod   ─▶ migration/disks.sock (QEMU's NBD server)
    migration/made-disks.sock ─▶  one, before libvirt begins     ─▶ migration/made-disks.sock (virt-launcher's)

Each TLS connection begins with a line (``header``) that names migration and channel. The target accepts it only from the source node of a
migration that it expects. The source sends nothing before OpenSSL has verified the target node's name. Revoking a node closes its relays.

virt-handler connects, accepts, checks, and opens the pods' sockets. One unprivileged process per migration (``program``) copies the data.
"""
