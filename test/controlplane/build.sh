#!/bin/sh
# build.sh: builds the real control plane that the tests run against: kube-apiserver, kube-controller-manager,
# kubectl and etcd, from the Go module proxy, into bin/controlplane/VERSION below the repository's root.
#
#	sh test/controlplane/build.sh                             the version named in the file VERSION
#	sh test/controlplane/build.sh etcd kubectl                these programs alone
#	KUBERNETES_VERSION=1.36.3 sh test/controlplane/build.sh   another one that has a directory here
#
# Every module is verified against the committed go.sum. Nothing is built when the binaries are up to date. The
# directory it fills serves as envtest's assets too. Programs that KUBEBUILDER_ASSETS has, as setup-envtest downloads them, are taken from
# there if they are of the same minor version, in place of minutes of building.
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

# What is built. The small ones come first: they share most of their packages with the large ones, and a failure shows
# early.
programs=${*:-etcd kubectl kube-controller-manager kube-apiserver}
target() {
	case $1 in
	etcd) echo go.etcd.io/etcd/server/v3 ;;
	kubectl | kube-*) echo "k8s.io/kubernetes/cmd/$1" ;;
	*) return 1 ;;
	esac
}

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
flags='-mod=readonly -buildvcs=false -trimpath'

# A program's stamp holds everything that decides what comes out, so that a comparison is the whole check. Each has one
# of its own: a program that is new or changed does not throw away the others, which take minutes.
toolchain=$(go version)
stamp() { # NAME
	echo "$toolchain, CGO_ENABLED=$CGO_ENABLED"
	echo "go build $flags -ldflags '$ldflags' $(target "$1")"
	cat go.mod go.sum
}
given=${KUBEBUILDER_ASSETS:-}
if [ -n "$given" ] && [ "$given" != "$out" ]; then
	given=$(CDPATH='' cd -- "$OLDPWD" && cd -- "$given" && pwd)
	release=$("$given/kube-apiserver" --version)
	case $release in
	"Kubernetes v${version%.*}."*) ;;
	*)
		echo "build.sh: KUBEBUILDER_ASSETS has $release, and $version is asked for" >&2
		echo "hint: unset it, or set KUBERNETES_VERSION to one of:" "$(cd "$here" && echo [0-9]*/ | tr -d /)" >&2
		exit 2
		;;
	esac
	mkdir -p "$out"
	rest=
	for name in $programs; do
		if [ -x "$given/$name" ]; then
			rm -f "$out/.$name.stamp" "$out/$name"
			ln -s "$given/$name" "$out/$name"
		else
			rest="$rest $name"
		fi
	done
	programs=$rest
fi
missing=
for name in $programs; do
	target "$name" >/dev/null || {
		echo "build.sh: no program is called $name" >&2
		exit 2
	}
	[ -x "$out/$name" ] && [ -f "$out/.$name.stamp" ] && stamp "$name" | cmp -s - "$out/.$name.stamp" || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

# Binaries appear under their names only when complete: an interrupted build leaves nothing that looks usable, and a
# control plane that is running keeps the file it was started from.
mkdir -p "$out"
partial=$out/.partial.$$
mkdir "$partial"
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

count=0
total=$(echo "$missing" | wc -w)
for name in $missing; do
	count=$((count + 1))
	case $name in
	etcd) label="etcd $(go list -mod=readonly -m -f '{{.Version}}' "$(target etcd)" | tr -d v)" ;;
	*) label="$name $version" ;;
	esac
	echo "building $label ($count/$total)…" >&2
	# shellcheck disable=SC2086 # several flags
	go build $flags -ldflags "$ldflags" -o "$partial/$name" "$(target "$name")"
	rm -f "$out/.$name.stamp"
	mv "$partial/$name" "$out/$name"
	stamp "$name" >"$out/.$name.stamp"
done
echo "control plane $version is in $out" >&2
