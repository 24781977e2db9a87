"""virt-launcher, the first process of a virtual machine's pod. It is small, has no credentials, and its guest may be hostile.

It gets requests from virt-handler over a unix socket in the pod, runs a libvirt domain in the pod's own libvirtd, and sends the newest
status to each connection. It does not talk to any API server. When the guest is off, the pod ends.

Read in this order: ``protocol`` (messages to and from virt-handler), ``main`` (the process: state, decisions and actions for the one
domain), ``domain`` (libvirt's XML from a specification, no I/O), ``hypervisor`` (the only package that imports libvirt). ``dhcp`` and
``ipv6`` are servers for the guest's network. ``__main__`` handles SIGTERM from the start, and prevents loading TLS, because each pod pays
for every MiB. virt-handler imports only ``protocol``.
"""
