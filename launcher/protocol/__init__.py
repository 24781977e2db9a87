"""The wire between virt-handler and virt-launcher: messages and their codec. No I/O."""
