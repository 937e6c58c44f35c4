#!/bin/sh
# Generates the *_pb2.py and *_pb2.pyi beside the .proto files. `make proto` calls it; a test compares byte for byte.
# usage: generate_proto.sh [OUT]   OUT: root under which the proto folders are written (default: this tree)
# No *_pb2_grpc.py: a method is one line where it is called or served, and the stubs would be eight modules more to load.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root}
cd "$root"
"${PYTHON:-python3}" -m grpc_tools.protoc -I. --python_out="$out" --pyi_out="$out" carico_agent/federation/proto/*.proto carico_agent/node/pods/proto/*.proto
# protoc writes bare `Mapping` into the stubs, which mypy --strict refuses
for stub in "$out"/carico_agent/federation/proto/*_pb2.pyi "$out"/carico_agent/node/pods/proto/*_pb2.pyi; do
  { echo '# mypy: disable-error-code="type-arg"'; cat "$stub"; } > "$stub.new" && mv "$stub.new" "$stub"
done
