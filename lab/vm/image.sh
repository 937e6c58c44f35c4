#!/usr/bin/env bash
# Builds the virtual node once, into a cache folder: kernel, initrd and root disk of a Debian with systemd and containerd.
#   lab/vm/image.sh CACHE
# 45 s and 550 MB with mmdebstrap. Nothing is installed on this machine, nothing is written elsewhere.
set -euo pipefail
cache=$1
# Linux 6.12, which bookworm has too: 6.1.192 oopses in ext4_mb_load_buddy_gfp when the guest is short of memory.
packages=systemd,systemd-sysv,udev,dbus,python3,python3-venv,containerd,runc,stress-ng,busybox-static,linux-image-6.12-cloud-amd64
# What the image is made of names it: another list is another image.
stamp="$cache/image-$(echo "$packages 2" | sha256sum | cut -c1-12)"
[ -e "$stamp/disk.ext4" ] && { echo "$stamp"; exit 0; }

work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
mmdebstrap --quiet --variant=minbase --include="$packages" --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
  --customize-hook='echo node > "$1/etc/hostname"' \
  --customize-hook='ln -sf /dev/null "$1/etc/systemd/system/systemd-networkd-wait-online.service"' \
  --customize-hook='ln -sf /dev/null "$1/etc/systemd/system/apt-daily.timer"' \
  --customize-hook='rm -rf "$1/var/cache/apt" "$1/var/lib/apt/lists"' \
  bookworm "$work/root" >&2
cat > "$work/root/etc/systemd/system/node-test.service" <<'UNIT'
[Unit]
Description=What the host put on the second disk
After=multi-user.target containerd.service
[Service]
Type=oneshot
ExecStartPre=/bin/mkdir -p /payload
ExecStartPre=/bin/mount -o ro /dev/vdb /payload
ExecStart=/bin/sh /payload/run.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=multi-user.target
UNIT
ln -s /etc/systemd/system/node-test.service "$work/root/etc/systemd/system/multi-user.target.wants/"
mkdir "$work/out"
cp "$work/root"/boot/vmlinuz-* "$work/out/vmlinuz"
cp "$work/root"/boot/initrd.img-* "$work/out/initrd"
truncate -s 3G "$work/out/disk.ext4"
mke2fs -q -t ext4 -d "$work/root" "$work/out/disk.ext4"
mv "$work/out" "$stamp"
echo "$stamp"
