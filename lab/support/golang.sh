#!/usr/bin/env bash
# A Go toolchain for a machine that has none, or one that is too old: Debian's, of this release or of testing, unpacked
# into FOLDER. Nothing is installed.
#
#   lab/support/golang.sh FOLDER VERSION    afterwards FOLDER/root/bin/go is at least VERSION, or it ends with the reason
set -euo pipefail
folder=$1 wanted=$2
. "$(dirname "$0")/../../tests/apt.sh"
command -v apt-get dpkg >/dev/null || { echo "apt-get is missing" >&2; exit 1; }
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
newer() { [ "$(printf '%s\n%s\n' "$wanted" "$1" | sort -V | head -n 1)" = "$wanted" ]; }

for suite in "$(own_release)" testing; do
  work=$folder/work
  rm -rf "$work"
  private_index "$work" "$suite" >/dev/null 2>&1 || continue
  version= # the oldest that is new enough: what is pinned was released with it
  for offered in $(apt-cache "${private_apt[@]}" pkgnames golang-1. | sed -nE 's/^golang-([0-9.]+)-go$/\1/p' | sort -rV); do
    if newer "$offered"; then version=$offered; fi
  done
  [ -n "$version" ] || continue
  (cd "$work/archives" && apt-get "${private_apt[@]}" download "golang-$version-go" "golang-$version-src" >/dev/null) || continue
  rm -rf "$folder/debian" "$folder/root"
  for package in "$work"/archives/*.deb; do dpkg -x "$package" "$folder/debian"; done
  cd "$folder/debian/usr/lib/go-$version"
  for link in src test api misc; do # Debian's links lead to /usr/share, which is elsewhere here
    rm -rf "${link:?}" && ln -s "../../share/go-$version/$link" "$link"
  done
  rm -rf "$work"
  ln -sfn "debian/usr/lib/go-$version" "$folder/root"
  exec "$folder/root/bin/go" version
done
rm -rf "$folder/work"
echo "neither $(own_release) nor testing has Go $wanted or newer" >&2
exit 1
