"""The bytes of live migrations, from pod to pod over mTLS.

::

    source pod                virt-handler (source)         virt-handler (target)          target pod
    migration/libvirt.sock ─▶ ``outgoing`` ═══ TLS, 8445 ═══▶ ``incoming`` ─▶ libvirt/libvirt-sock
    migration/data.sock    ─▶      one connection per channel    ─▶ migration/data.sock (QEMU's)

Each TLS connection begins with one header line (``header``) that names the migration and the channel. The target's virt-handler lets
it through only from a virt-handler's certificate and only while it expects that migration.
A third kind of connection carries no bytes: the source's virt-handler says that the guest left its pod, so that it may run in the target.
"""
