#!/bin/sh
# Generates the *_pb2.py and *_pb2.pyi beside the .proto files. `make proto` calls it; a test compares byte for byte.
# usage: generate.sh [OUT]   OUT: root under which carico_agent/runtime/proto/ is written (default: this tree)
# No *_pb2_grpc.py: a method is one line in containerd.py, the stubs would be seven modules more to load.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=${1:-$root}
cd "$root"
"${PYTHON:-python3}" -m grpc_tools.protoc -I. --python_out="$out" --pyi_out="$out" carico_agent/runtime/proto/*.proto
# protoc writes bare `Mapping` into the stubs, which mypy --strict refuses
for stub in "$out"/carico_agent/runtime/proto/*_pb2.pyi; do
  { echo '# mypy: disable-error-code="type-arg"'; cat "$stub"; } > "$stub.new" && mv "$stub.new" "$stub"
done
