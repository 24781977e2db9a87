"""virt-launcher's process: pid 1 of the pod of one virtual machine.

``process`` puts together what runs side by side: ``children`` reaps and starts processes, ``wire`` serves virt-handler, ``console`` serves
the serial port to any number of viewers, ``qemu_log`` bounds QEMU's output, and ``managed_domain`` is the one domain. Whatever dies beside
us (virt-handler, libvirtd, a viewer) the guest goes on; when the guest is off, the pod ends.

The domain is decided about by functions of frozen data (left) and carried out by what waits (right)::

    known     all that is known, and what a fact makes of it    record      holds the newest; tells of changes
    requests  what a request asks for, or why it is refused     watching    looks at the domain
    life      the next step towards off; how a run ended        starting    Sync, with what it needs: preparation, files
    incoming_migration  how far a domain that comes is          migrations  both sides; outgoing_migration carries one out
                                                                stopping    Shutdown, Destroy, SIGTERM
                                                                suspension  Suspend, Resume
                                                                disk_servers: silent, and back

Each on the right takes facts into the record and reads there, after every await anew, what is known; ``making`` bounds what a SIGTERM
abandons. Only what runs by itself calls back: console, the guest's ``agent``, the progress of an outgoing migration.
"""
