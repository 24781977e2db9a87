"""virt-launcher, the first process of a virtual machine's pod. No credentials, small, and next to a hostile guest.

In come calls of virt-handler over a unix socket in the pod; out go a libvirt domain in a libvirtd of the pod's own, and the newest status
of it to every connection. It talks to no API server. When the guest is off, the pod ends.

To be read in this order: ``protocol`` (the messages that it and virt-handler agree on), ``main`` (the process: what is known, decided and
done about the one domain), ``domain`` (libvirt's XML from a specification, no I/O), ``hypervisor`` (the only package that imports
libvirt). ``dhcp`` and ``ipv6`` are servers for the guest's network. ``__main__`` heeds SIGTERM from the first moment on, and
keeps TLS from being loaded: each pod pays for every MiB. Of all this virt-handler imports ``protocol`` alone.
"""
