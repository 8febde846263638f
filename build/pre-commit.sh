#!/bin/sh
# pre-commit.sh: builds gatehouse alone, in the clone that pre-commit has for this version, and runs it. "language: golang" would build
# every program of the module.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
(cd "$root" && GOWORK=off CGO_ENABLED=0 go build -trimpath -o bin/gatehouse ./cmd/gatehouse)
exec "$root/bin/gatehouse" "$@"
