#!/bin/sh
# build.sh: builds cert-manager's controllers from the Go module proxy into bin/certmanager below the repository's root:
# controller, which issues certificates, cainjector, which writes their authorities into webhook configurations, and
# crds, the definitions of its objects.
#
#	sh test/support/certmanager/build.sh
#
# Every module is verified against the committed program/go.sum. Nothing is built when the binaries are up to date.
# cert-manager's own commands are modules that are not published, only what they are made of is: the small ones in
# program start the same controllers. For another version: 'go get github.com/cert-manager/cert-manager@VERSION' and
# 'go mod tidy' in program, with GOWORK=off.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../../.." && pwd)
module=github.com/cert-manager/cert-manager
out=$root/bin/certmanager
cd "$here/program"
version=$(awk -v module="$module" '$1 == module { print $2 }' go.mod)

# A workspace would replace the pinned versions. Nothing of it needs cgo, and so no C compiler is needed. The target is
# always this machine, whatever is being cross-compiled besides.
export GOWORK=off CGO_ENABLED=0
unset GOOS GOARCH GOFLAGS
flags='-mod=readonly -buildvcs=false -trimpath'
# The controllers tell the API server their version.
ldflags="-s -w -X $module/pkg/util.AppVersion=$version"

# The stamp holds everything that decides what comes out, so that a comparison is the whole check.
toolchain=$(go version)
stamp() {
	echo "$toolchain, CGO_ENABLED=$CGO_ENABLED"
	echo "go build $flags -ldflags '$ldflags'"
	cat go.mod go.sum controller/*.go cainjector/*.go
}
if [ -f "$out/.stamp" ] && stamp | cmp -s - "$out/.stamp"; then
	exit 0
fi

# The directory appears under its name only when complete: an interrupted build leaves nothing that looks usable, and
# what is running keeps the file it was started from.
mkdir -p "$root/bin"
partial=$root/bin/.certmanager.partial.$$
mkdir -p "$partial/crds"
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "building cert-manager's controllers $version (once, about two minutes)…" >&2
# shellcheck disable=SC2086 # several flags
if ! go build $flags -ldflags "$ldflags" -o "$partial/" ./controller ./cainjector; then
	echo "build.sh: cert-manager was not built" >&2
	echo "hint: if modules could not be downloaded, see what GOPROXY says: go env GOPROXY" >&2
	exit 1
fi
source=$(go list -mod=readonly -m -f '{{.Dir}}' "$module")
for file in "$source"/deploy/crds/*.yaml; do
	cat "$file" >"$partial/crds/${file##*/}" # a copy would be read-only, as the original is
done
stamp >"$partial/.stamp"
rm -rf "$out"
mv "$partial" "$out"
echo "cert-manager's controllers are in $out" >&2
