"""virt-launcher's process: pid 1 of the pod of one virtual machine.

``process`` puts together what runs side by side: ``children`` reaps and starts processes, ``pod`` is the life of the one domain, whose
decisions are pure functions in ``life``. ``preparation`` makes what it starts with (``files``: disks), ``agent`` asks the guest's agent,
``wire`` serves it all to virt-handler, ``console`` serves the serial port to any number of viewers, ``qemu_log`` bounds QEMU's output.
Whatever dies beside us (virt-handler, libvirtd, a viewer) the guest goes on; when the guest is off, the pod ends.
"""
