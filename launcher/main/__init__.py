"""virt-launcher's process: pid 1 of the pod of one virtual machine.

``process`` puts together what runs side by side: ``children`` reaps and starts processes, ``libvirtd`` is one that is started again when it
ends, ``wire`` serves virt-handler, ``console`` serves the serial port to any number of viewers, ``qemu_log`` bounds QEMU's output, and
``managed_domain`` is the one domain. Whatever dies beside us (virt-handler, libvirtd, a viewer) the guest goes on; when the guest is off,
the pod ends.

The domain is decided about by functions of frozen data (left) and carried out by what waits (right)::

    known               all that is known; what a fact makes of it   record             holds the newest; tells of changes
    machines            what follows from the machine alone          watching           looks at the domain
    requests            what a request asks for, or its refusal      starting           Sync, with what it needs: preparation, files
    life                the next step towards off; how a run ended   suspension         Suspend, Resume
    power_off           grace periods; when which step is taken      stopping           Shutdown, Destroy, SIGTERM
    incoming_migration  how far a domain that comes is               migrations         both sides; outgoing_migration carries one out
                                                                                        while pod_memory lasts
    full_disks          who has no space, and may go on              free_space         measures it
    agent_questions     what the guest's agent is asked              agent              asks it
    import_reports      what the importer says                       imports            runs it; import_plans finds what is missing
                                                                     disk_server_watch  disk_servers: silent, and back

Each on the right takes facts into the record and reads there, after every await anew, what is known; ``making`` bounds what a SIGTERM
abandons, and ``times`` has how long is waited for what. Only what runs by itself calls back: console, the guest's ``agent``, the progress
of an outgoing migration.
"""
