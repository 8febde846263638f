#!/usr/bin/env bash
# Checks in a copy of the tracked and new files that generating again changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' f; do
	[ -e "$f" ] && printf '%s\0' "$f"
done | tar --null -T - -cf - | tar -xf - -C "$copy"
ln -s "$PWD/bin" "$copy/bin"
before=$(mktemp -d)
trap 'rm -rf "$copy" "$before"' EXIT
cp -a "$copy/." "$before/"
(
	cd "$copy"
	bin/controller-gen-* object paths=./webhooks/api/...
	go mod tidy
	go run ./cmd/gatehouse manifests --service gatehouse-system/gatehouse --certificates cert-manager >manifests/registration/cert-manager.yaml
)
if ! diff -ru --no-dereference "$before" "$copy"; then
	echo "verify: generated files are not up to date (hint: run 'make generate' and 'go mod tidy', and commit the result)" >&2
	exit 1
fi
