#!/usr/bin/env bash
# Real parts for the tests, from Debian's packages: unpacked into a cache folder, so that no service is installed or
# started on this machine. What cannot be had is said; the tests that need it then skip with that reason.
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
)

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
