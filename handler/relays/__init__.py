"""The bytes of live migrations, from pod to pod over mTLS.

::

    source pod                virt-handler (source)         virt-handler (target)          target pod
    migration/libvirt.sock ─▶ ``outgoing`` ═══ TLS, 8445 ═══▶ ``incoming`` ─▶ libvirt/libvirt-sock
    migration/data.sock    ─▶     connections of each channel    ─▶ migration/data.sock (QEMU's)
    migration/disks.sock   ─▶     one for each disk of the pod   ─▶ migration/disks.sock (QEMU's NBD server)

Each TLS connection begins with one header line (``header``) that names the migration and the channel. The target's virt-handler lets it
through only while it expects that migration, and only from virt-handler of the migration's source node; the source's sends nothing
before OpenSSL has found the target node's name in the certificate of whom it dialled. A node that is revoked loses its open relays,
too. Another kind of connection carries no bytes: the source's virt-handler says that the guest left its pod, so that it may run in the
target.

virt-handler dials, accepts, judges and opens the pods' sockets; the bytes themselves go through a process without rights (``carrier``,
started and heard by ``carrying``), one for each migration at the source and one for all at the target: no event loop waits for them.
"""
