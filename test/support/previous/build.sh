#!/bin/sh
# build.sh: builds the previous release of Gatehouse, from which tests upgrade, into bin/previous below the repository's root.
#
#	sh test/support/previous/build.sh
#
# CHANGELOG.md names its tag or commit. Nothing is built when the binary is up to date. Its chart is kept as an archive, as users have
# it; this says how to make one that is missing.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../../.." && pwd)
out=$root/bin/previous
cd "$root"

fail() { # MESSAGE HINT
	echo "build.sh: $1" >&2
	echo "hint: $2" >&2
	exit 1
}
ref=$(sed -n 's/^Upgrades are tested from .*`\([^`]*\)`\.$/\1/p' CHANGELOG.md)
[ -n "$ref" ] || fail "CHANGELOG.md does not name the previous release" \
	"below its title, write: Upgrades are tested from release \`v0.1.0\`."
git rev-parse --quiet --verify "$ref^{commit}" >/dev/null ||
	fail "$ref, the previous release that CHANGELOG.md names, is not in this repository" "git fetch --tags --unshallow"
chart=test/incluster/testdata/previous/gatehouse-$ref.tgz
[ -f "$chart" ] || fail "$chart does not exist" \
	"git archive --prefix=gatehouse/ $ref:manifests/chart/gatehouse | gzip -9n > $chart, and remove the one of the release before"

# As 'make build', so that most packages are compiled already. The target is always this machine.
export GOWORK=off CGO_ENABLED=0
unset GOOS GOARCH GOFLAGS
flags='-trimpath -buildvcs=false'
ldflags="-s -w -X github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build.released=$ref"

# The stamp holds everything that decides what comes out, so that a comparison is the whole check.
toolchain=$(go version)
commit=$(git rev-parse "$ref^{commit}")
stamp() {
	echo "$toolchain, CGO_ENABLED=$CGO_ENABLED"
	echo "go build $flags -ldflags '$ldflags'"
	echo "$commit"
}
if [ -f "$out/.stamp" ] && stamp | cmp -s - "$out/.stamp"; then
	exit 0
fi

# The directory appears under its name only when complete: an interrupted build leaves nothing that looks usable.
mkdir -p "$root/bin"
partial=$root/bin/.previous.partial.$$
mkdir -p "$partial/built" "$partial/source"
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "building the previous release, $ref (once, about a minute)…" >&2
git archive --output "$partial/source.tar" "$commit"
tar -xf "$partial/source.tar" -C "$partial/source"
# shellcheck disable=SC2086 # several flags
(cd "$partial/source" && go build $flags -ldflags "$ldflags" -o "$partial/built/gatehouse" ./cmd/gatehouse)
stamp >"$partial/built/.stamp"
rm -rf "$out"
mv "$partial/built" "$out"
echo "the previous release is in $out" >&2
