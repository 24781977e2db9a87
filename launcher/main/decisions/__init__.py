"""virt-launcher's decisions about its domain, as functions of state. No I/O."""
