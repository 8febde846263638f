#!/bin/sh
# build.sh: builds helm, kustomize and krew, with which people install Gatehouse, from the Go module proxy into bin/installers
# below the repository's root.
#
#	sh test/support/installers/build.sh
#
# Every module is verified against the committed program/go.sum. Nothing is built when the binaries are up to date. Helm
# is the fourth, which applies as the API server does and so finds what two managers of a field would fight over. For
# another version: 'go get -tool helm.sh/helm/v4/cmd/helm@VERSION' and 'go mod tidy' in program, with GOWORK=off.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../../.." && pwd)
helm=helm.sh/helm/v4
kustomize=sigs.k8s.io/kustomize
out=$root/bin/installers
cd "$here/program"
version() {
	awk -v module="$1" '$1 == module && $2 ~ /^v/ { print $2 }' go.mod
}

# A workspace would replace the pinned versions. Nothing of it needs cgo, and so no C compiler is needed. The target is
# always this machine, whatever is being cross-compiled besides.
export GOWORK=off CGO_ENABLED=0
unset GOOS GOARCH GOFLAGS
flags='-mod=readonly -buildvcs=false -trimpath'
# What they say of their version. A chart may ask for one of helm's.
ldflags="-s -w -X $helm/internal/version.version=$(version "$helm") -X $kustomize/api/provenance.version=$(version "$kustomize/kustomize/v5")"

# The stamp holds everything that decides what comes out, so that a comparison is the whole check.
toolchain=$(go version)
stamp() {
	echo "$toolchain, CGO_ENABLED=$CGO_ENABLED"
	echo "go build $flags -ldflags '$ldflags'"
	cat go.mod go.sum
}
if [ -f "$out/.stamp" ] && stamp | cmp -s - "$out/.stamp"; then
	exit 0
fi

# The directory appears under its name only when complete: an interrupted build leaves nothing that looks usable, and
# what is running keeps the file it was started from.
mkdir -p "$root/bin"
partial=$root/bin/.installers.partial.$$
mkdir "$partial"
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "building helm, kustomize and krew (once, about three minutes)…" >&2
# Each by itself: of several programs, go build names none after a module that ends with a version.
build() {
	# shellcheck disable=SC2086 # several flags
	if ! go build $flags -ldflags "$ldflags" -o "$partial/$1" "$2"; then
		echo "build.sh: $1 was not built" >&2
		echo "hint: if modules could not be downloaded, see what GOPROXY says: go env GOPROXY" >&2
		exit 1
	fi
}
build helm "$helm/cmd/helm"
build kustomize "$kustomize/kustomize/v5"
build krew sigs.k8s.io/krew/cmd/krew
stamp >"$partial/.stamp"
rm -rf "$out"
mv "$partial" "$out"
echo "helm, kustomize and krew are in $out" >&2
