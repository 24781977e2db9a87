"""The QEMU guest agent: what virt-launcher asks it and writes through it."""
