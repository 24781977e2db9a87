#!/bin/sh
# build.sh SYSTEM CONFIGURATION OUT: a disk that boots, from a tar file of an installed system and the files that are laid over it.
# Needs root for the owners of files, but no loop device and no mount: the file systems are written as files.
set -eu
system=$1 configuration=$2 out=$3
PATH=$PATH:/usr/sbin:/sbin
root=/build/root disk=/build/disk.img
root_uuid=6d2b1c0e-9f0b-4c36-8c5e-3a4f1d7e9b20 esp_serial=4b56-4d31
mkdir -p /build "$out/disk"

# The system, without what belongs to one machine alone: its keys and its identity are made at the first boot.
mkdir -p "$root"
tar --extract --preserve-permissions --numeric-owner --directory="$root" --file="$system"
cp --recursive "$configuration/." "$root"
rm -rf "$root"/etc/ssh/ssh_host_*_key* "$root"/tmp/* "$root"/var/tmp/* "$root"/var/log/apt "$root"/var/log/*.log "$root"/var/cache/debconf/*-old \
  "$root"/var/lib/dpkg/*-old "$root"/var/lib/systemd/random-seed "$root"/etc/dpkg/dpkg.cfg.d/*mmdebstrap* "$root"/etc/apt/apt.conf.d/*mmdebstrap*
: >"$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id"
ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
echo localhost >"$root/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
echo "UUID=$root_uuid / ext4 rw,discard,errors=remount-ro 0 1" >"$root/etc/fstab"
chroot "$root" systemctl --quiet enable systemd-networkd systemd-resolved systemd-timesyncd ssh serial-getty@ttyS0
# Work for an evening of a machine that lives for years.
chroot "$root" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service

# /etc and /var are as new as /usr: without these marks the first boot would make caches anew that are there.
touch "$root/etc/.updated" "$root/var/.updated"

# The kernel by the links that its package keeps: one that is installed later boots without a change here.
mkdir -p "$root/boot/grub"
cat >"$root/boot/grub/grub.cfg" <<CONFIGURATION
serial --unit=0 --speed=115200
terminal_input console serial
terminal_output console serial
set timeout=0
menuentry Debian {
  search --no-floppy --fs-uuid --set=root $root_uuid
  linux /vmlinuz root=UUID=$root_uuid ro console=tty0 console=ttyS0,115200 no_timer_check
  initrd /initrd.img
}
CONFIGURATION
[ -e "$root/vmlinuz" ] && [ -e "$root/initrd.img" ]

# Partitions, in MiB: 1 for GRUB's core behind a BIOS, 16 for UEFI, and the last one, which grows.
mebibytes=$(($(du --summarize --block-size=1M --apparent-size "$root" | cut -f 1) * 5 / 4 + 64))
truncate --size=$((19 + mebibytes))M "$disk"
sfdisk --quiet "$disk" <<PARTITIONS
label: gpt
label-id: 5c0ffee0-1d15-4c3a-9a51-6b7d0f2e4a10
1 : start=18MiB, size=${mebibytes}MiB, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=root
14 : start=1MiB, size=1MiB, type=21686148-6449-6E6F-744E-656564454649, name=bios
15 : start=2MiB, size=16MiB, type=C12A7328-F81F-11D2-BA4B-00C04FC93EC9, name=esp
PARTITIONS
mke2fs -q -t ext4 -b 4096 -L root -U $root_uuid -E offset=$((18 << 20)),hash_seed=$root_uuid,lazy_itable_init=1 -d "$root" "$disk" ${mebibytes}M

# UEFI: shim, signed by Microsoft, and Debian's signed GRUB, which looks for its configuration in EFI/debian.
mkfs.vfat -F 16 -n ESP -i "$(echo $esp_serial | tr -d -)" --offset 4096 "$disk" 16384 >/dev/null
printf 'search.fs_uuid %s root\nset prefix=($root)/boot/grub\n' $root_uuid >/build/early.cfg
{ cat /build/early.cfg; echo 'configfile $prefix/grub.cfg'; } >/build/esp.cfg
export MTOOLS_SKIP_CHECK=1
mmd -i "$disk@@2M" ::/EFI ::/EFI/BOOT ::/EFI/debian
mcopy -i "$disk@@2M" /usr/lib/shim/shimx64.efi.signed ::/EFI/BOOT/BOOTX64.EFI
mcopy -i "$disk@@2M" /usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed ::/EFI/BOOT/grubx64.efi
mcopy -i "$disk@@2M" /build/esp.cfg ::/EFI/debian/grub.cfg

# A BIOS: GRUB's boot sector and core, as grub-bios-setup would write them if it knew disks that are files. Both hold where the rest
# lies: the boot sector the core's first sector at 0x5c; that one, in its last 12 bytes, where the second lies, in 64 bits.
grub-mkimage --format=i386-pc --output=/build/core.img --prefix=/boot/grub --config=/build/early.cfg \
  biosdisk part_gpt ext2 search search_fs_uuid normal configfile linux serial terminal echo minicmd
[ "$(stat --format=%s /build/core.img)" -le 1048576 ]
dd if=/usr/lib/grub/i386-pc/boot.img of="$disk" bs=440 count=1 conv=notrunc status=none
printf '\000\010\000\000\000\000\000\000' | dd of="$disk" bs=1 seek=$((0x5c)) conv=notrunc status=none  # 2048
printf '\001\010\000\000\000\000\000\000' | dd of=/build/core.img bs=1 seek=$((0x1f4)) conv=notrunc status=none  # 2049
dd if=/build/core.img of="$disk" bs=1M seek=1 conv=notrunc status=none

# Larger than what is in it, as disks of clouds are: cloud-init grows partition and file system at the first boot.
truncate --size=2G "$disk"
qemu-img convert -f raw -O qcow2 -c -o compression_type=zstd "$disk" "$out/disk/disk.qcow2"
chmod -R a+rX "$out"
rm -rf /build
