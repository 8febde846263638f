#!/bin/sh
# build.sh: builds dex, the OpenID Connect issuer that the tests log in to, from the Go module proxy into bin/dex below
# the repository's root.
#
#	sh test/support/dex/build.sh
#
# Every module is verified against the committed program/go.sum. Nothing is built when the binary is up to date. 'go
# install' refuses dex for the replace directives in its go.mod; those of a dependency do not apply, so dex is a
# dependency here. For another version: 'go get -tool github.com/dexidp/dex/cmd/dex@COMMIT' and 'go mod tidy' in
# program, with GOWORK=off.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../../.." && pwd)
program=github.com/dexidp/dex/cmd/dex
out=$root/bin/dex
cd "$here/program"

# A workspace would replace the pinned versions. Without cgo dex lacks SQLite alone, which the tests do not use, and no
# C compiler is needed. The target is always this machine, whatever is being cross-compiled besides.
export GOWORK=off CGO_ENABLED=0
unset GOOS GOARCH GOFLAGS
flags='-mod=readonly -buildvcs=false -trimpath'
ldflags='-s -w'

# The stamp holds everything that decides what comes out, so that a comparison is the whole check.
toolchain=$(go version)
stamp() {
	echo "$toolchain, CGO_ENABLED=$CGO_ENABLED"
	echo "go build $flags -ldflags '$ldflags' $program"
	cat go.mod go.sum
}
if [ -x "$out" ] && [ -f "$root/bin/.dex.stamp" ] && stamp | cmp -s - "$root/bin/.dex.stamp"; then
	exit 0
fi

# The binary appears under its name only when complete: an interrupted build leaves nothing that looks usable, and a dex
# that is running keeps the file it was started from.
mkdir -p "$root/bin"
partial=$root/bin/.dex.partial.$$
trap 'rm -f "$partial"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "building dex (once, about a minute)…" >&2
# shellcheck disable=SC2086 # several flags
if ! go build $flags -ldflags "$ldflags" -o "$partial" "$program"; then
	echo "build.sh: dex was not built" >&2
	echo "hint: if modules could not be downloaded, see what GOPROXY says: go env GOPROXY" >&2
	exit 1
fi
rm -f "$root/bin/.dex.stamp"
mv "$partial" "$out"
stamp >"$root/bin/.dex.stamp"
echo "dex is in $out" >&2
