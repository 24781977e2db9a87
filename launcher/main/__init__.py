"""virt-launcher's process: pid 1 of the pod of one virtual machine.

``process`` starts the concurrent parts, and ends them in order. The guest keeps running when virt-handler, libvirtd or a viewer ends.
Packages, from the bottom up:

    decisions   functions of frozen data, without I/O: what a request asks for, the next step, how a run ended
    programs    child processes (libvirtd, passt, virtiofsd), and what their container offers them
    disks       files, images, servers, certificates and firmware state, before libvirt sees them
    agent       the QEMU guest agent        serving   sockets: the wire protocol and the consoles
    lifecycle   prepare, start, watch, migrate, suspend and stop the domain
"""
