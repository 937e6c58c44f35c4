#!/usr/bin/env bash
# Real parts for the tests, from Debian's packages: unpacked into a cache folder, so that no service is installed or
# started on this machine. What cannot be had is printed; the tests that need it then skip with that reason.
set -euo pipefail
cache=$1
mkdir -p "$cache"

# binary: package(s) that bring it
wanted=(
  "containerd:containerd"
  "runc:runc"
  "busybox:busybox-static"
  "bc:bc"
  "promtool:prometheus"
  "faketime:faketime libfaketime"
  "prometheus-node-exporter:prometheus-node-exporter"
  "kubectl:kubernetes-client"
)

# A containerd 2.x beside the one of this release: Debian testing's needs nothing but libc 2.34.
newer=$(dirname "$cache")/containerd-2
if [ ! -x "$newer/usr/bin/containerd" ] && command -v apt-get dpkg-deb >/dev/null; then
  . "$(dirname "$0")/apt.sh"
  work=$(mktemp -d)
  if private_index "$work" testing >/dev/null 2>&1 &&
    (cd "$work/archives" && apt-get "${private_apt[@]}" download containerd >/dev/null 2>&1) &&
    mkdir -p "$newer" && dpkg -x "$work"/archives/containerd_*.deb "$newer"; then
    echo "tools: $(cd "$work/archives" && ls containerd_*.deb) unpacked into $newer"
  else
    echo "tools: containerd 2.x cannot be downloaded; tests that need it will skip" >&2
  fi
  rm -rf "$work"
fi

missing=()
for entry in "${wanted[@]}"; do
  command -v "${entry%%:*}" >/dev/null || missing+=(${entry#*:})
done
[ ${#missing[@]} -eq 0 ] && exit 0

command -v apt-get >/dev/null || { echo "tools: no apt-get here, so these stay missing: ${missing[*]}" >&2; exit 0; }
[ "$(id -u)" -eq 0 ] && apt-get update -qq >/dev/null 2>&1 || true
download=$(mktemp -d "$cache/download.XXXXXX")
trap 'rm -rf "$download"' EXIT
for package in "${missing[@]}"; do
  if (cd "$download" && apt-get download -qq "$package" >/dev/null 2>&1); then
    dpkg -x "$download/$package"_*.deb "$cache"
    echo "tools: $package unpacked into $cache"
  else
    echo "tools: $package cannot be downloaded; tests that need it will skip" >&2
  fi
done
