#!/usr/bin/env bash
# Checks in a copy of the tracked and new files that 'make generate' and 'go mod tidy' change nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/before"
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
	[ ! -e "$file" ] || printf '%s\0' "$file"
done | tar --null -T - -cf - | tar -xf - -C "$work/before"
cp -a "$work/before" "$work/after"
mkdir -p "$work/after/bin"
ln -s "$PWD"/bin/controller-gen-* "$work/after/bin/"
make --no-print-directory -C "$work/after" generate >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
(cd "$work/after" && go mod tidy)
rm -rf "$work/after/bin"
if ! diff -ru "$work/before" "$work/after"; then
	echo "verify: generated files are not up to date (hint: run 'make generate' and 'go mod tidy', and commit the result)" >&2
	exit 1
fi
