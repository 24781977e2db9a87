#!/bin/sh
# build.sh OUT: compile the tiny kernel. It needs gcc alone: no libc, no headers but the compiler's.
set -eu
here=$(dirname "$0")
gcc -m32 -march=i686 -O2 -std=gnu11 -Wall -Wextra -Werror -ffreestanding -fno-builtin -mgeneral-regs-only \
  -fno-pic -fno-stack-protector -fcf-protection=none -fno-asynchronous-unwind-tables -fno-tree-loop-distribute-patterns \
  -nostdlib -static -no-pie -Wl,-T,"$here/kernel.ld" -Wl,--build-id=none -Wl,-z,noexecstack,--no-warn-rwx-segments -s -o "$1" "$here/start.S" "$here/kernel.c"
