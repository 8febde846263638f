#!/usr/bin/env bash
# Checks that a release can be made again: makes it a second time, from a copy of the files in a directory of another name, with
# nothing that was compiled before, in another time zone, and compares every byte. The tools are those that are here: their
# versions are pinned.
#
#	test/reproducible.sh RELEASE VERSION SOURCE_DATE_EPOCH PLATFORMS
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1 version=$2 epoch=$3 platforms=$4
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
tree=$work/elsewhere/tree
mkdir -p "$tree/bin"
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
	[ ! -e "$file" ] || printf '%s\0' "$file"
done | tar --null -T - -cf - | tar -xf - -C "$tree"
for tool in installers packer cyclonedx-gomod; do
	ln -s "$(realpath "bin/$tool")" "$tree/bin/$tool"
done
# Newer than what they are made of, so that they are not made again.
touch -h "$tree/bin/"*
GOCACHE="$work/cache" TZ=Pacific/Auckland LC_ALL=C make --no-print-directory -C "$tree" release VERSION="$version" SOURCE_DATE_EPOCH="$epoch" PLATFORMS="$platforms" >&2
if ! diff -r "$release" "$tree/bin/release"; then
	echo "reproducible: the same files gave another release (hint: look for what is left of the directory or the time with 'strings')" >&2
	exit 1
fi
echo "reproducible: $(sha256sum <"$release/SHA256SUMS" | cut -d' ' -f1) $release/SHA256SUMS"
