#!/bin/sh
# build.sh: builds the real control plane that the tests run against: kube-apiserver, kube-controller-manager,
# kubectl and etcd, from the Go module proxy, into bin/controlplane/VERSION below the repository's root.
#
#	sh test/controlplane/build.sh                             the version named in the file VERSION
#	KUBERNETES_VERSION=1.36.3 sh test/controlplane/build.sh   another one that has a directory here
#
# Every module is verified against the committed go.sum. Nothing is built when the binaries are up to date. The
# directory it fills serves as envtest's assets too (KUBEBUILDER_ASSETS).
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)

version=${KUBERNETES_VERSION:-$(cat "$here/VERSION")}
version=${version#v}
out=$root/bin/controlplane/$version

if [ ! -f "$here/$version/go.sum" ]; then
	echo "build.sh: no module for Kubernetes $version, only for:" "$(cd "$here" && echo [0-9]*/ | tr -d /)" >&2
	echo "hint: 'sh test/controlplane/pin.sh $version' adds one" >&2
	exit 2
fi
cd "$here/$version"

# A workspace would replace the pinned versions. Static binaries run in any namespace or image, and need no C
# compiler. The target is always this machine, whatever is being cross-compiled besides.
export GOWORK=off CGO_ENABLED=0
unset GOOS GOARCH

# The stamp holds everything that decides what comes out, so that a comparison is the whole check.
stamp() {
	echo "$version"
	go version
	cat "$here/build.sh" go.mod go.sum
}
mkdir -p "$out"
if [ -f "$out/.stamp" ] && stamp | cmp -s - "$out/.stamp"; then
	complete=yes
	for name in etcd kubectl kube-controller-manager kube-apiserver; do
		[ -x "$out/$name" ] || complete=no
	done
	[ $complete = no ] || exit 0
fi
rm -f "$out/.stamp"

# Unstamped, a kube-apiserver calls itself v0.0.0-master: clients that look at the server's version, and the server
# itself when it is told to emulate one, then refuse to work. kubectl reads the copy in client-go. Of the rest, the
# commit is not known here.
minor=${version#*.}
minor=${minor%%.*}
ldflags='-s -w'
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	ldflags="$ldflags -X $package.gitVersion=v$version -X $package.gitMajor=${version%%.*} -X $package.gitMinor=$minor"
	ldflags="$ldflags -X $package.gitCommit= -X $package.gitTreeState=archive"
done

# Binaries appear under their names only when complete: an interrupted build leaves nothing that looks usable, and a
# control plane that is running keeps the file it was started from.
partial=$out/.partial.$$
mkdir "$partial"
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The small ones first: they share most of their packages with the large ones, and a failure shows early.
count=0
for package in go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kubectl \
	k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-apiserver; do
	count=$((count + 1))
	case $package in
	*/etcd/*) name=etcd label="etcd $(go list -mod=readonly -m -f '{{.Version}}' "$package" | tr -d v)" ;;
	*) name=${package##*/} label="${package##*/} $version" ;;
	esac
	echo "building $label ($count/4)…" >&2
	go build -mod=readonly -buildvcs=false -trimpath -ldflags "$ldflags" -o "$partial/$name" "$package"
	mv "$partial/$name" "$out/$name"
done
stamp >"$out/.stamp"
echo "control plane $version is in $out" >&2
