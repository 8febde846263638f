#!/bin/sh
# pin.sh VERSION: writes VERSION/go.mod and VERSION/go.sum, which build.sh then builds from.
#
# Run it once for a Kubernetes version that is new here (sh pin.sh 1.38.0), or again with the same version after
# this script changed, and commit both files. It asks the module proxy; build.sh only verifies.
set -eu

version=${1:?usage: sh pin.sh VERSION, for example: sh pin.sh 1.37.0}
version=${version#v}
case $version in
1.[0-9]*.[0-9]*) ;;
*) echo "pin.sh: version \"$version\" is not of the form 1.MINOR.PATCH" >&2 && exit 2 ;;
esac

cd "$(dirname -- "$0")"
export GOWORK=off

# Upstream's own go.mod lists its staging modules as v0.0.0 and replaces them by folders of the same checkout.
# Such replacements do not apply to dependents, and v0.0.0 exists nowhere else, so each gets its published version:
# v0.37.0 belongs to v1.37.0.
# Asked from the root folder, so that no go.mod above this one takes part.
upstream=$(cd / && go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^[[:space:]]*"GoMod": "\(.*\)",*$/\1/p')
[ -n "$upstream" ] || { echo "pin.sh: k8s.io/kubernetes v$version has no go.mod at the module proxy" >&2 && exit 1; }
staging=$(sed -n 's/^[[:space:]]*\(k8s\.io\/[a-z-]*\) v0\.0\.0$/\1/p' "$upstream")
# etcd is the one that this Kubernetes is tested with: one dependency graph, so no clash.
etcd=$(sed -n 's/^[[:space:]]*go\.etcd\.io\/etcd\/client\/v3 \(v[^ ]*\).*$/\1/p' "$upstream")

mkdir -p "$version"
cd "$version"
rm -f go.sum
{
	echo "// Written by ../pin.sh $version: do not edit."
	echo "module github.com/gatehouse-dev/gatehouse/test/controlplane/$version"
	echo
	sed -n -e '/^go /p' -e '/^godebug /p' "$upstream"
	echo
	echo "tool ("
	for tool in k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager \
		k8s.io/kubernetes/cmd/kubectl go.etcd.io/etcd/server/v3; do
		echo "	$tool"
	done
	echo ")"
	echo
	echo "require ("
	echo "	go.etcd.io/etcd/server/v3 $etcd"
	echo "	k8s.io/kubernetes v$version"
	echo ")"
	echo
	echo "replace ("
	for module in $staging; do
		echo "	$module => $module v0${version#1}"
	done
	echo ")"
} >go.mod

go mod tidy
