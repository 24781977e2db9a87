"""virt-launcher, the first process of a virtual machine's pod. It has no credentials, and its guest may be hostile.

It gets requests from virt-handler over a unix socket, runs a domain in the pod's own libvirtd, and sends the newest status to each
connection. When the guest is off, the pod ends.

Read in this order: ``protocol`` (messages; virt-handler imports only this), ``main`` (state, decisions and actions for the domain),
``domain`` (libvirt's XML, no I/O), ``hypervisor`` (libvirt). ``dhcp`` and ``ipv6`` are servers for the guest's network.
"""
