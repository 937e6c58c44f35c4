#!/usr/bin/env bash
# `pip install` is enough: in fresh systems of several releases (apt and a Python, nothing else) carico is installed into
# a venv from wheels, started, and asked. Needs root, mmdebstrap and the releases' mirrors; about a minute each.
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'umount -l "$work"/*/root/proc 2>/dev/null || true; rm -rf "$work"' EXIT
python=${PYTHON:-python3}

cp -r "$tree" "$work/tree"  # setuptools writes into the tree it builds
"$python" -m pip wheel -q --no-deps -w "$work/own" "$work/tree" 2>/dev/null

try() { # release, mirror, components, package that brings the venv, interpreter, its version
  local name=$1 mirror=$2 components=$3 package=$4 interpreter=$5 version=$6 root=$work/$1/root
  mkdir -p "$work/$name"
  "$python" -m pip download -q --only-binary :all: --python-version "$version" --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$work/$name/wheels" "$work"/own/*.whl 2>/dev/null
  mmdebstrap -q --variant=apt --include="$package" "$name" "$root" \
    "deb [trusted=yes] $mirror $name $components" "deb [trusted=yes] $mirror $name-updates $components" 2>/dev/null
  cp -r "$work/$name/wheels" "$root/wheels"
  mount -t proc proc "$root/proc"
  chroot "$root" env -i PATH="$PATH" HOME=/root bash -euc "
    $interpreter -m venv /opt/carico
    /opt/carico/bin/pip install -q --no-index --find-links /wheels carico-agent
    /opt/carico/bin/carico agent --quiet --socket /tmp/a.sock 2>/tmp/log &
    for _ in \$(seq 60); do
      sleep 0.5
      if printed=\$(/opt/carico/bin/carico status --socket /tmp/a.sock 2>/dev/null); then
        . /etc/os-release
        echo \"ok      \$PRETTY_NAME, \$($interpreter --version): \$(head -1 <<<\"\$printed\")\"
        kill %1; exit 0
      fi
    done
    echo 'NOT OK  $name: no number within 30 s'; cat /tmp/log; kill %1; exit 1"
  umount -l "$root/proc"
}

. "$(dirname "$0")/apt.sh"
debian=${DEBIAN_MIRROR:-$(archive_of "$(own_release)")} ubuntu=${UBUNTU_MIRROR:--} failed=0
for release in "bookworm $debian main python3-venv python3 3.11" \
               "trixie $debian main python3-venv python3 3.13" \
               "jammy $ubuntu main,universe python3.11-venv python3.11 3.11" \
               "noble $ubuntu main,universe python3-venv python3 3.12"; do
  read -r name mirror components package interpreter version <<<"$release"
  [ "$mirror" != - ] || { echo "skipped $name: set UBUNTU_MIRROR to an archive of Ubuntu"; continue; }
  (try "$name" "$mirror" "${components//,/ }" "$package" "$interpreter" "$version") || { echo "NOT OK  $name"; failed=1; }
done
exit $failed
