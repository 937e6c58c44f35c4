#!/usr/bin/env bash
# Debian packages for the container image, without installing any and without root.
#   lab/release/packages.sh lock NAME…            prints "name version sha256" of the newest of each
#   lab/release/packages.sh download FOLDER NAME=VERSION…
set -euo pipefail
. "$(dirname "$0")/../../tests/apt.sh"
suite=bookworm work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
private_index "$work" $suite >/dev/null
# Point releases come seldom, security updates when they are needed: that archive, where this machine knows it.
security=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | awk -v suite=$suite-security '$1 == suite {print $2; exit}')
if [ -n "$security" ]; then
  echo "deb $security $suite-security main" >>"$work/sources.list"
  apt-get "${private_apt[@]}" update >/dev/null
fi
verb=$1
shift
case $verb in
lock)
  for name in "$@"; do
    apt-cache "${private_apt[@]}" show --no-all-versions "$name" | awk -v name="$name" '$1 == "Version:" {version = $2} $1 == "SHA256:" {print name, version, $2; exit}'
  done
  ;;
download)
  folder=$1
  shift
  cd "$folder" && apt-get "${private_apt[@]}" download "$@" >/dev/null
  ;;
esac
