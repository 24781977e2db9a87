/* The header by which QEMU's -kernel knows the kernel, and the first instructions (Multiboot Specification 0.6.96, chapter 3). */
        .set MAGIC, 0x1badb002
        .set MEMORY_MAP, 1 << 1

        .section .multiboot, "a"
        .align 4
        .long MAGIC, MEMORY_MAP, -(MAGIC + MEMORY_MAP)

        .text
        .globl _start
_start: mov $stack_end, %esp
        push %ebx                       /* struct multiboot */
        call kernel

        .bss
        .align 16
        .skip 16384
stack_end:
