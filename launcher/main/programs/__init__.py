"""Child processes of virt-launcher, and what their container offers them."""
