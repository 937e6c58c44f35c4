#!/usr/bin/env bash
# Builds, once, into a cache folder, what a virtual Kubernetes node and carico's container image are made of.
#   PYTHON=… lab/cluster/image.sh CACHE CONTAINERD WHEELS     prints the folder
# CONTAINERD: an unpacked containerd 2 package (tests/tools.sh). WHEELS: what carico needs, for Debian 12's Python 3.11.
# The folder has vmlinuz, initrd and disk.ext4 (Debian with systemd, containerd 2, runc and CNI plugins; no kubelet yet),
# and base.tar (the lower layer of carico's container image). Nothing is installed on this machine.
set -euo pipefail
cache=$1 containerd=$2 wheels=$3
here=$(cd "$(dirname "$0")" && pwd)
suite=bookworm
# Linux 6.12: 6.1.192 oopses in ext4_mb_load_buddy_gfp when the guest is short of memory. runc is Debian 12's: testing's
# needs a newer libc than this image has, and containerd 2.1 works with both.
node=systemd,systemd-sysv,udev,dbus,kmod,iproute2,iptables,python3,python3-venv,runc,containernetworking-plugins
node+=,busybox-static,linux-image-6.12-cloud-amd64
container=python3,python3-venv
# What the image is made of names it: another list is another image.
parts=$(cat "$0" "$here"/guest/* "$here/preload.py" "$here/container_image.py"; ls "$wheels"; "$containerd/usr/bin/containerd" --version)
stamp="$cache/image-$(echo "$parts" | sha256sum | cut -c1-12)"
[ -e "$stamp/disk.ext4" ] && { echo "$stamp"; exit 0; }

work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/out"

debian() { # FOLDER PACKAGES: a root folder with carico's dependencies in /opt/carico
  mmdebstrap --quiet --variant=minbase --include="$2" --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --customize-hook='rm -rf "$1/var/cache/apt" "$1/var/lib/apt/lists" "$1/usr/share/doc" "$1/usr/share/man" "$1/usr/share/locale"' \
    "$suite" "$1" >"$1.log" 2>&1 || { tail -n 30 "$1.log" >&2; return 1; }
  cp -r "$wheels" "$1/wheels"
  rm -f "$1"/wheels/carico* # the tree itself is a layer of its own
  chroot "$1" sh -ec 'python3 -m venv --without-pip /opt/carico
    python3 -m venv /tmp/pip
    /tmp/pip/bin/pip --python /opt/carico/bin/python install -q --no-index --find-links /wheels /wheels/*.whl
    rm -rf /tmp/pip /wheels' >&2
}

echo "cluster: making the root folder of carico's image" >&2
debian "$work/base" "$container"
tar -C "$work/base" --exclude=./dev --sort=name --numeric-owner -cf "$work/out/base.tar" .

echo "cluster: making the root disk of a node" >&2
root="$work/root"
debian "$root" "$node"
cp -r "$containerd"/usr/bin/. "$root/usr/bin/"
units="$root/etc/systemd/system"
sed '/^#/d' "$containerd/usr/lib/systemd/system/containerd.service" >"$units/containerd.service"
mkdir -p "$root/etc/containerd" "$root/etc/cni/net.d"
cp "$here/guest/containerd.toml" "$root/etc/containerd/config.toml"
cp "$here/guest/node.network" "$root/etc/systemd/network/10-node.network"
cp "$here"/guest/*.service "$units/"
wants="$units/multi-user.target.wants"
mkdir -p "$wants"
for unit in containerd node-setup kubelet; do ln -s "/etc/systemd/system/$unit.service" "$wants/"; done
ln -s /lib/systemd/system/systemd-networkd.service "$wants/"
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer; do
  ln -sf /dev/null "$units/$unit"
done
# The first serial line is the console, which a getty would hang up; the second is a shell for the host.
ln -s /dev/null "$units/serial-getty@ttyS0.service"
mkdir -p "$units/serial-getty@ttyS1.service.d" "$units/getty.target.wants"
cp "$here/guest/shell.conf" "$units/serial-getty@ttyS1.service.d/"
ln -s /lib/systemd/system/serial-getty@.service "$units/getty.target.wants/serial-getty@ttyS1.service"
rm -f "$root/etc/resolv.conf"
echo node >"$root/etc/hostname"
: >"$root/etc/machine-id" # each node makes its own
cp "$root"/boot/vmlinuz-* "$work/out/vmlinuz"
cp "$root"/boot/initrd.img-* "$work/out/initrd"
"$PYTHON" -m lab.cluster.preload "$root" "$work/out/base.tar" >&2
truncate -s 4G "$work/out/disk.ext4"
mke2fs -q -t ext4 -d "$root" "$work/out/disk.ext4"
mv "$work/out" "$stamp"
echo "$stamp"
