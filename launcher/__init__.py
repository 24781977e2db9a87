"""virt-launcher, the first process of a virtual machine's pod. No credentials, small, and next to a hostile guest."""
