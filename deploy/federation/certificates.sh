#!/usr/bin/env bash
# Certificates for federation, into the folder where this is run: an authority (ca.crt, ca.key; kept if they are there),
# one for the aggregator (tls.crt, tls.key) and one for each node, in its name: NODE.crt, NODE.key. What is there and
# valid for another month stays, so that new nodes are added by running it again.
#
#   ./certificates.sh NODE...          names as kubectl prints them, with or without "node/"
set -euo pipefail
umask 077
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"

if [ ! -e ca.key ]; then
  # shellcheck disable=SC2086
  openssl req -x509 $key -keyout ca.key -out ca.crt -days 3650 -subj /CN=carico-federation-ca 2>/dev/null
fi

issue() { # file, common name, alternative name
  if [ -e "$1.crt" ] && openssl x509 -in "$1.crt" -noout -checkend 2592000 >/dev/null; then return; fi
  # shellcheck disable=SC2086
  openssl req -new $key -keyout "$1.key" -out "$1.csr" -subj "/CN=$2" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -out "$1.crt" -days 365 \
    -extfile <(echo "subjectAltName=DNS:$3") 2>/dev/null
  rm "$1.csr"
}

issue tls carico-aggregator carico-aggregator.carico.svc
for node in "$@"; do issue "${node#node/}" "${node#node/}" "${node#node/}"; done
