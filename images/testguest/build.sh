#!/bin/sh
# build.sh PACKAGES GUEST OUT: kernel, initial RAM disk and a disk that boots, from unpacked Debian packages and the guest's own files.
# Needs no privileges, no loop device and no mount: the file system is written by mtools.
set -eu
packages=$1 guest=$2 out=$3
root=$(mktemp -d)
kernel=$(ls "$packages/boot" | sed -n 's/^vmlinuz-//p')
modules="$packages/lib/modules/$kernel"
[ -d "$modules" ] || { mkdir -p "$packages/lib/modules"; modules="$packages/usr/lib/modules/$kernel"; ln -s "$modules" "$packages/lib/modules/$kernel"; }

for directory in bin sbin etc/qemu proc sys dev tmp run mnt lib64 lib/x86_64-linux-gnu lib/modules usr/share/udhcpc var/log; do mkdir -p "$root/$directory"; done
ln -s /run "$root/var/run"
cp -R "$guest/." "$root/"
cp /bin/busybox "$root/bin/busybox"
for command in $(/bin/busybox --list); do [ -e "$root/bin/$command" ] || ln -s busybox "$root/bin/$command"; done

# The modules of every virtual device that a machine of ours may have, with what they depend on.
depmod -b "$packages" "$kernel"
mkdir -p "$root/lib/modules/$kernel"
for module in virtio_pci virtio_mmio virtio_blk virtio_scsi sd_mod sr_mod ahci virtio_net virtio_console virtio_balloon virtio_rng virtio_mem \
  virtiofs button evdev isofs vfat efivarfs af_packet e1000 e1000e; do
  modprobe --dirname "$packages" --set-version "$kernel" --show-depends "$module" 2>/dev/null | awk '/^insmod/ {print $2}' | while read -r file; do
    name=$(basename "$file" .xz)
    [ -e "$root/lib/modules/$kernel/$name" ] && continue
    case $file in
      *.xz) xz --decompress --stdout "$file" >"$root/lib/modules/$kernel/$name" ;;
      *) cp "$file" "$root/lib/modules/$kernel/$name" ;;
    esac
    # Without its signature, which an emulated guest would verify for a tenth of the time that it takes to boot.
    strip --strip-debug "$root/lib/modules/$kernel/$name"
    echo "${name%.ko}" >>"$root/lib/modules/names"
  done
done
cp "$modules/modules.order" "$modules/modules.builtin" "$root/lib/modules/$kernel/"
depmod -b "$root" "$kernel"
find "$root/lib/modules/$kernel" -name 'modules.*' ! -name modules.dep -delete

# The guest agent and the libraries it names, from its package or from this system.
agent=$(find "$packages" -name qemu-ga -type f | head -n 1)
cp "$agent" "$root/bin/qemu-ga"
libraries="$packages/usr/lib/x86_64-linux-gnu"
LD_LIBRARY_PATH=$libraries ldd "$root/bin/qemu-ga" | awk '/=> \// {print $3}' | while read -r library; do cp -L "$library" "$root/lib/x86_64-linux-gnu/"; done
LD_LIBRARY_PATH=$libraries ldd "$root/bin/qemu-ga" | grep 'not found' >&2 && exit 1
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"

mkdir -p "$out/boot" "$out/disk"
cp "$packages/boot/vmlinuz-$kernel" "$out/boot/vmlinuz"
(cd "$root" && find . | LC_ALL=C sort | cpio --create --format=newc --owner=0:0 --reproducible --quiet) >"$out/boot/initrd"
gzip -9n <"$out/boot/initrd" >"$out/boot/initrd.gz"

# The kernel as it is in the bzImage: its header says where (Linux, Documentation/arch/x86/boot.rst), and four bytes of its size follow.
at() { od --address-radix=n --format="$1" --skip-bytes="$2" --read-bytes="${1#u}" "$out/boot/vmlinuz" | tr -d ' '; }
tail -c +$((($(at u1 0x1f1) + 1) * 512 + $(at u4 0x248) + 1)) "$out/boot/vmlinuz" | head -c $(($(at u4 0x24c) - 4)) >"$root/payload"
case $(head -c 4 "$root/payload" | od --address-radix=n --format=x1 | tr -d ' ') in
  02214c18) lz4 -d -q "$root/payload" "$out/boot/vmlinux" ;;
  28b52ffd) zstd -d -q -o "$out/boot/vmlinux" "$root/payload" ;;
  fd377a58) xz --decompress --stdout --single-stream "$root/payload" >"$out/boot/vmlinux" ;;
  *) echo "the kernel is compressed in another way than lz4, zstd and xz" >&2 && exit 1 ;;
esac
rm "$root/payload"

# A disk of one active FAT partition at 1 MiB, with syslinux in it and its code in the boot record.
disk=$out/disk/disk.img
sectors=$((($(stat -c %s "$out/boot/vmlinuz") + $(stat -c %s "$out/boot/initrd.gz")) / 512 + 8192))
truncate -s $(((2048 + sectors) * 512)) "$disk"
echo "2048,$sectors,6,*" | sfdisk --quiet "$disk"
PATH=$PATH:/usr/sbin:/sbin
mkfs.vfat -F 16 -n TESTGUEST --offset 2048 "$disk" $((sectors / 2)) >/dev/null
cat >"$root/syslinux.cfg" <<CONFIGURATION
SERIAL 0 115200
DEFAULT guest
PROMPT 0
LABEL guest
  LINUX vmlinuz
  INITRD initrd.gz
  APPEND console=ttyS0 quiet panic=1
CONFIGURATION
export MTOOLS_SKIP_CHECK=1
mcopy -i "$disk@@1M" "$out/boot/vmlinuz" "$out/boot/initrd.gz" "$root/syslinux.cfg" ::
syslinux --install --offset 1048576 "$disk"
dd if=/usr/lib/syslinux/mbr/mbr.bin of="$disk" bs=440 count=1 conv=notrunc status=none
mkdir -p "$out/bin"
cp /bin/busybox "$guest/bin/gauge" "$out/bin/"
for command in sh cp mv test ls; do ln -s busybox "$out/bin/$command"; done
chmod -R a+rX "$out"
rm -rf "$root"
