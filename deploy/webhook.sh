#!/usr/bin/env bash
# Certificates of the extender, and the webhook before every binding: what the default needs beside `kubectl apply -k deploy`.
# Makes an authority (ca.crt, ca.key; kept if they are there), certificates for the extender and for kube-scheduler, and a
# token in the folder where this is run; then the secret carico-extender-tls, and admission/bindings.yaml with both in it.
# Run it again to renew certificates: those that are valid for another month stay.
#
#   ./webhook.sh                       KUBECTL="kubectl --context NAME" for another cluster
set -euo pipefail
umask 077
here=$(cd "$(dirname "$0")" && pwd)
read -ra kubectl <<<"${KUBECTL:-kubectl}"
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes" # a handshake costs the extender less than with RSA

if [ ! -e ca.key ]; then
  # shellcheck disable=SC2086
  openssl req -x509 $key -keyout ca.key -out ca.crt -days 3650 -subj /CN=carico-extender-ca 2>/dev/null
fi
for name in extender scheduler; do
  if [ -e $name.crt ] && openssl x509 -in $name.crt -noout -checkend 2592000 >/dev/null; then continue; fi
  # shellcheck disable=SC2086
  openssl req -new $key -keyout $name.key -out $name.csr -subj /CN=$name 2>/dev/null
  openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out $name.crt -days 365 \
    -extfile <(echo "subjectAltName=DNS:carico-extender.carico.svc") 2>/dev/null
  rm $name.csr
done
[ -e token ] || openssl rand -hex 24 >token

"${kubectl[@]}" -n carico create secret generic carico-extender-tls --from-file=ca.crt --from-file=tls.crt=extender.crt \
  --from-file=tls.key=extender.key --from-file=token --dry-run=client -o yaml | "${kubectl[@]}" apply -f -
"${kubectl[@]}" patch --local -f "$here/admission/bindings.yaml" --type json -o yaml -p \
  "[{\"op\":\"add\",\"path\":\"/webhooks/0/clientConfig/caBundle\",\"value\":\"$(base64 -w0 ca.crt)\"},
    {\"op\":\"replace\",\"path\":\"/webhooks/0/clientConfig/service/path\",\"value\":\"/admit/$(cat token)\"}]" |
  "${kubectl[@]}" apply -f -
