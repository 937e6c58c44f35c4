#!/usr/bin/env bash
# The .deb packages of a release, in fresh systems: installed, asked as the user carico, purged; then no file is left that
# was not there before. No systemd runs in them (tests/vm has one). Needs root, mmdebstrap and the releases' mirrors.
#   tests/release.sh DIST
set -euo pipefail
dist=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'umount -l "$work"/*/proc 2>/dev/null || true; rm -rf "$work"' EXIT
. "$(dirname "$0")/apt.sh"

try() { # release, mirror, components, end of the package's version, version of Python
  local name=$1 mirror=$2 components=$3 root=$work/$1 package
  package=$(ls "$dist"/carico-agent_*~"$4"_amd64.deb)
  mmdebstrap -q --variant=apt --include="python$5,libstdc++6,passwd,systemd" "$name" "$root" \
    "deb [trusted=yes] $mirror $name $components" "deb [trusted=yes] $mirror $name-updates $components" 2>/dev/null
  cp "$package" "$root/carico.deb"
  mount -t proc proc "$root/proc"
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C bash -euc '
    files() { find / -xdev -path /proc -prune -o -path /var/lib/dpkg -prune -o -path /var/log -prune -o -path /tmp -prune -o -path /run/systemd -prune \
      -o -path /var/cache -prune -o -print | sort; cat /etc/passwd /etc/group /etc/shadow /etc/gshadow 2>/dev/null | sort; }
    files >/tmp/before
    dpkg -i /carico.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
    systemctl is-enabled -q carico-agent.service
    systemd-analyze verify /usr/lib/systemd/system/carico-agent.service 2>&1 | grep carico && exit 1
    zcat /usr/share/man/man1/carico-status.1.gz | grep -q "^.SH OPTIONS"
    mkdir -p /run/carico /var/lib/carico && chown carico: /run/carico /var/lib/carico  # as the unit does
    STATE_DIRECTORY=/var/lib/carico setpriv --reuid=carico --regid=carico --clear-groups carico agent --quiet \
      --config /etc/carico/config.toml --socket /run/carico/agent.sock 2>/tmp/log &
    for _ in $(seq 120); do
      sleep 0.5
      if printed=$(carico status --socket /run/carico/agent.sock 2>/dev/null); then break; fi
    done
    [ -n "$printed" ] || { cat /tmp/log; exit 1; }
    kill %1; wait %1 || true
    dpkg --purge carico-agent >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
    files >/tmp/after
    diff /tmp/before /tmp/after || { echo "left behind"; exit 1; }
    . /etc/os-release
    echo "ok      $PRETTY_NAME: $(head -1 <<<"$printed")"'
  umount -l "$root/proc"
}

debian=${DEBIAN_MIRROR:-$(archive_of "$(own_release)")} ubuntu=${UBUNTU_MIRROR:--} failed=0
for release in "bookworm $debian main deb12 3.11" "trixie $debian main deb13 3.13" \
               "noble $ubuntu main,universe ubuntu24.04 3.12"; do
  read -r name mirror components version python <<<"$release"
  [ "$mirror" != - ] || { echo "skipped $name: set UBUNTU_MIRROR to an archive of Ubuntu"; continue; }
  (try "$name" "$mirror" "${components//,/ }" "$version" "$python") || { echo "NOT OK  $name"; failed=1; }
done
exit $failed
