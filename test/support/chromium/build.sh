#!/bin/sh
# build.sh: puts a Chromium without a window for the tests into bin/chromium below the repository's root: the one that is
# installed, if there is one and it works, else the one of this system's Debian packages, which are unpacked there and not
# installed.
#
#	sh test/support/chromium/build.sh
#
# It needs neither root nor anything running. What it makes: run, a script that starts the browser. Nothing is done if it
# works already.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../../.." && pwd)
out=$root/bin/chromium

fail() { # MESSAGE HINT
	echo "build.sh: $1" >&2
	echo "hint: $2" >&2
	exit 2
}

# A browser that starts may still lack a library or a font, so it renders a page.
works() { # DIRECTORY
	[ -x "$1/run" ] || return 1
	mkdir -p "$1/probe"
	status=0
	"$1/run" --headless --no-sandbox --disable-gpu --user-data-dir="$1/probe/profile" --dump-dom 'data:text/html,<p>it%20works' >"$1/probe/dom" 2>"$1/probe/log" || status=$?
	rm -rf "$1/probe/profile"
	[ "$status" -eq 0 ] && grep -q 'it works' "$1/probe/dom"
}

if works "$out"; then
	exit 0
fi

mkdir -p "$root/bin"
partial=$root/bin/.chromium.partial.$$
mkdir "$partial"
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# It appears under its name only when it is complete.
finish() {
	rm -rf "$out"
	mv "$partial/tree" "$out"
	works "$out" || fail "chromium does not work: $(tail -n 3 "$out/probe/log")" "remove $out and try again"
	echo "chromium is in $out" >&2
	exit 0
}

tree=$partial/tree
for program in chromium-headless-shell chromium chromium-browser google-chrome; do
	installed=$(command -v "$program" || true)
	[ -n "$installed" ] || continue
	mkdir "$tree"
	printf '#!/bin/sh\nexec "%s" "$@"\n' "$installed" >"$tree/run"
	chmod +x "$tree/run"
	if works "$tree"; then
		finish
	fi
	echo "the installed $installed does not render a page; trying others" >&2
	rm -rf "$tree"
done

for tool in apt-get apt-cache dpkg dpkg-query; do
	command -v "$tool" >/dev/null 2>&1 ||
		fail "no chromium is installed, and there is no $tool to get one" "install Chromium, and try again"
done

# Lists of our own, if those of the system are missing or name packages that are gone by now: no need to be root.
mkdir -p "$partial/lists/partial" "$partial/cache/archives/partial"
own="-o Dir::State::Lists=$partial/lists -o Dir::Cache=$partial/cache -o APT::Sandbox::User="
[ "$(id -u)" -eq 0 ] || own="$own -o Debug::NoLocking=1"

# Of the browser's packages those that this system lacks: libraries, its common files, and a font.
wanted() { # APT-OPTIONS
	# shellcheck disable=SC2086 # several options
	apt-cache $1 depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances chromium-headless-shell fonts-dejavu-core 2>/dev/null |
		grep -E '^(chromium-headless-shell|chromium-common|fonts-dejavu-core|lib[^ :]*)$' | grep -vE '^lib(perl|c6$|gcc)|-perl$' | sort -u |
		while read -r package; do
			status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
			[ "$status" = installed ] || echo "$package"
		done
}
download() { # APT-OPTIONS
	packages=$(wanted "$1")
	echo "$packages" | grep -qx chromium-headless-shell || return 1
	mkdir -p "$partial/packages"
	# shellcheck disable=SC2086 # several options and packages
	(cd "$partial/packages" && apt-get $1 -qq download $packages) >"$partial/log" 2>&1
}

echo "getting chromium from this system's packages…" >&2
if ! download '-o APT::Sandbox::User='; then
	# shellcheck disable=SC2086 # several options
	apt-get $own -qq update >"$partial/log" 2>&1 ||
		fail "the lists of packages cannot be read: $(tail -n 3 "$partial/log")" "see that 'apt-get update' works, or install chromium"
	download "$own" ||
		fail "the packages of chromium cannot be got: $(tail -n 3 "$partial/log")" "see that 'apt-get download chromium-headless-shell' works, or install chromium"
fi

mkdir "$tree"
for package in "$partial"/packages/*.deb; do
	dpkg -x "$package" "$tree/root"
done
rm -rf "$tree/root/usr/share/doc" "$tree/root/usr/share/locale"
mkdir "$tree/lib"
find "$tree/root/usr/lib" "$tree/root/lib" -path '*-linux-*' -name 'lib*.so*' -exec mv {} "$tree/lib/" \; 2>/dev/null || true
cat >"$tree/run" <<'END'
#!/bin/sh
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
XDG_DATA_HOME=$here/root/usr/share LD_LIBRARY_PATH=$here/lib exec "$here/root/usr/lib/chromium/chromium-headless-shell" "$@"
END
chmod +x "$tree/run"
works "$tree" || fail "the unpacked chromium does not work: $(tail -n 3 "$tree/probe/log")" "install chromium"
finish
