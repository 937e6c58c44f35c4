#!/usr/bin/env bash
# A real control plane and kubelet for the tests: etcd from Debian's package, the others built once from Debian's source
# package. Everything is downloaded and unpacked into a cache folder: nothing is installed, and this
# machine's own package sources are left alone. Takes about 8 minutes on two cores, the second time nothing.
#
#   tests/kube/build.sh [FOLDER]     afterwards FOLDER/bin has etcd, kube-apiserver, kube-scheduler and kubelet
#
# To use newer binaries instead, set KUBEBUILDER_ASSETS to a folder that has the first three, as envtest does; the test
# with a kubelet skips where there is none.
set -euo pipefail
cache=${1:-${CARICO_CACHE:-$HOME/.cache/carico}/kube}
mkdir -p "$cache/bin"
cache=$(cd "$cache" && pwd)
. "$(dirname "$0")/../apt.sh"
exec 9>"$cache/lock"
flock 9 # two builds at once would only disturb each other

parts="kube-apiserver kube-scheduler kube-controller-manager kubelet"
complete() { for part in etcd $parts; do [ -x "$cache/bin/$part" ] || return 1; done; }
complete && exit 0
[ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/kube-scheduler" ] && exit 0

fail() { echo "kube: $*" >&2; echo "$*" >"$cache/reason"; exit 1; }
command -v apt-get >/dev/null || fail "no apt-get here, so the control plane cannot be built; set KUBEBUILDER_ASSETS"
command -v dpkg-source >/dev/null || fail "dpkg-source is missing; try: apt-get install dpkg-dev"

# ---- a package index of our own, with sources
work=$cache/work
mkdir -p "$work/root"
echo "kube: reading the package index"
private_index "$work" "$(own_release)" src || fail "the package index cannot be read; does apt-get update work here?"

# ---- tools, unpacked beside each other
go_package=$(apt-cache "${private_apt[@]}" depends golang-go | awk '/Depends: golang-[0-9.]+-go/ {print $2; exit}')
[ -n "$go_package" ] || fail "this Debian has no golang-go"
(cd "$work/archives" && apt-get "${private_apt[@]}" download etcd-server "$go_package" "${go_package%-go}-src" \
  rsync libpopt0 libxxhash0 liblz4-1 libzstd1 jq libjq1 libonig5) || fail "packages cannot be downloaded"
for package in "$work"/archives/*.deb; do dpkg -x "$package" "$work/root"; done
cp "$work/root/usr/bin/etcd" "$cache/bin/etcd"

# ---- the source, and the build (a bare `go build` fails: generated code is missing)
if [ ! -d "$work/kubernetes" ]; then
  echo "kube: downloading the source of kubernetes"
  (cd "$work" && apt-get "${private_apt[@]}" source --download-only kubernetes) || fail "the source package cannot be downloaded"
  (cd "$work" && dpkg-source --no-check -x kubernetes_*.dsc kubernetes >/dev/null) || fail "the source does not unpack"
fi
goroot=$(echo "$work"/root/usr/lib/go-*)
if [ ! -e "$goroot/src/runtime/proc.go" ]; then # Debian's links point to /usr/share and are dangling here
  for link in src test api misc; do rm -rf "${goroot:?}/$link"; ln -s "$work/root/usr/share/$(basename "$goroot")/$link" "$goroot/$link"; done
fi
export GOROOT=$goroot GOPATH=$work/kubernetes/.go CGO_ENABLED=0 GOFLAGS=-mod=vendor GOCACHE=$work/gocache HOME=$work/home
export PATH=$goroot/bin:$work/root/usr/bin:$PATH LD_LIBRARY_PATH=$work/root/usr/lib/$(uname -m)-linux-gnu:$work/root/lib/$(uname -m)-linux-gnu
mkdir -p "$HOME" "$GOPATH/src/k8s.io"
ln -sfn "$work/kubernetes" "$GOPATH/src/k8s.io/kubernetes"
echo "kube: building $parts (some minutes)"
unset GOFLAGS
(cd "$GOPATH/src/k8s.io/kubernetes" && nice make WHAT="$(printf 'cmd/%s ' $parts)") >"$cache/build.log" 2>&1 ||
  fail "the build failed, see $cache/build.log"
for part in $parts; do cp "$work"/kubernetes/_output/local/bin/*/*/"$part" "$cache/bin/"; done
rm -rf "$work" "$cache/reason"
echo "kube: ready in $cache/bin"
