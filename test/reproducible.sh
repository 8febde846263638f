#!/usr/bin/env bash
# Checks that a release can be made again: builds bin/dist's binary for this machine's architecture a second time, from a copy
# of the files in a directory of another name, with nothing that was compiled before, and compares the bytes.
#
#	test/reproducible.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1
binary=bin/dist/gatehouse-linux-$(go env GOARCH)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
mkdir -p "$work/elsewhere/tree"
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
	[ ! -e "$file" ] || printf '%s\0' "$file"
done | tar --null -T - -cf - | tar -xf - -C "$work/elsewhere/tree"
GOCACHE="$work/cache" TZ=Pacific/Auckland LC_ALL=C make --no-print-directory -C "$work/elsewhere/tree" "$binary" VERSION="$version"
if ! cmp "$binary" "$work/elsewhere/tree/$binary"; then
	echo "reproducible: the same files gave another binary (hint: look for what is left of the directory or the time with 'strings')" >&2
	exit 1
fi
echo "reproducible: $(sha256sum <"$binary" | cut -d' ' -f1) $binary"
