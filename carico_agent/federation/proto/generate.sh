#!/bin/sh
# Writes federation_pb2.py and .pyi beside the .proto (or into $1). Needs grpcio-tools (extra "dev"); PYTHON picks the
# interpreter. The service itself is not generated: server.py and client.py name the four methods and pass bytes, so
# that a view is serialised once and not once per node.
set -eu
cd "$(dirname "$0")"
out="${1:-.}"
"${PYTHON:-python3}" -m grpc_tools.protoc --proto_path=. --python_out="$out" --pyi_out="$out" federation.proto
# protoc makes its output refuse every protobuf older than itself; what we use of it is the same since 4.21, and
# setup.cfg promises 5.26. So the check goes.
sed -i -e '/^_runtime_version\./,/^)$/d' -e '/runtime_version as/d' -e '/^# Protobuf Python Version/d' \
    "$out/federation_pb2.py"
sed -i -e 's/_Mapping\]/_Mapping[str, object]]/g' "$out/federation_pb2.pyi"  # mypy --strict wants to know of what
