#!/bin/sh
# build.sh: puts an OpenLDAP server for the tests into bin/slapd below the repository's root: the one that is installed,
# if there is one and it works, else the one of this system's Debian packages, which are unpacked there and not
# installed.
#
#	sh test/support/slapd/build.sh
#
# It needs neither root nor anything running. What it makes: slapd, the program; schema, its schema files; modules, what
# it loads, unless everything is compiled in; lib, the libraries that this system lacks. Nothing is done if it works
# already.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../../.." && pwd)
out=$root/bin/slapd

fail() { # MESSAGE HINT
	echo "build.sh: $1" >&2
	echo "hint: $2" >&2
	exit 2
}

# A program that starts may still lack a module or a schema, or be kept from reading our files by the system's security
# policy: so it reads a configuration such as the tests have.
works() { # DIRECTORY
	[ -x "$1/slapd" ] && [ -f "$1/schema/inetorgperson.schema" ] || return 1
	{
		for schema in core cosine inetorgperson nis; do
			echo "include $1/schema/$schema.schema"
		done
		if [ -e "$1/modules" ]; then
			echo "modulepath $1/modules"
			echo 'moduleload back_mdb'
		fi
		printf 'database mdb\nsuffix dc=test\ndirectory %s\n' "$1"
	} >"$1/probe.conf"
	status=0
	LD_LIBRARY_PATH=$1/lib "$1/slapd" -T test -u -f "$1/probe.conf" >"$1/probe.log" 2>&1 || status=$?
	return "$status"
}

if works "$out"; then
	exit 0
fi

mkdir -p "$root/bin"
partial=$root/bin/.slapd.partial.$$
mkdir "$partial"
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# It appears under its name only when it is complete.
finish() {
	rm -rf "$out"
	mkdir "$out"
	for part in slapd schema modules lib; do
		[ ! -e "$partial/tree/$part" ] || mv "$partial/tree/$part" "$out/$part"
	done
	works "$out" || fail "slapd does not work: $(tail -n 3 "$out/probe.log")" "remove $out and try again"
	echo "slapd is in $out" >&2
	exit 0
}

first() { # PATH…
	for path in "$@"; do
		if [ -e "$path" ]; then
			echo "$path"
			return
		fi
	done
}

tree=$partial/tree
mkdir "$tree"
installed=$(PATH=$PATH:/usr/sbin:/usr/libexec:/usr/lib/openldap command -v slapd || true)
if [ -n "$installed" ]; then
	schema=$(first /etc/ldap/schema /etc/openldap/schema)
	modules=$(first /usr/lib/ldap /usr/lib64/openldap /usr/lib/openldap)
	ln -s "$installed" "$tree/slapd"
	[ -z "$schema" ] || ln -s "$schema" "$tree/schema"
	[ -z "$modules" ] || ln -s "$modules" "$tree/modules"
	if works "$tree"; then
		finish
	fi
	echo "the installed $installed does not serve, $(tail -n 1 "$tree/probe.log"); trying packages" >&2
	rm -rf "$tree"
	mkdir "$tree"
fi

for tool in apt-get apt-cache dpkg dpkg-query; do
	command -v "$tool" >/dev/null 2>&1 ||
		fail "no slapd is installed, and there is no $tool to get one" "install OpenLDAP's server, such as the package openldap-servers, and try again"
done

# Lists of our own, if those of the system are missing or name packages that are gone by now: no need to be root.
mkdir -p "$partial/lists/partial" "$partial/cache/archives/partial"
own="-o Dir::State::Lists=$partial/lists -o Dir::Cache=$partial/cache -o APT::Sandbox::User="
[ "$(id -u)" -eq 0 ] || own="$own -o Debug::NoLocking=1"

# Of slapd's libraries those that this system lacks. Perl and ODBC are for backends that no test has.
wanted() { # APT-OPTIONS
	# shellcheck disable=SC2086 # several options
	apt-cache $1 depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances slapd 2>/dev/null |
		grep -E '^(slapd|lib[^ :]*)$' | grep -vE '^lib(perl|odbc|c6$|gcc|crypt1$)|-perl$' | sort -u |
		while read -r package; do
			status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
			[ "$status" = installed ] && [ "$package" != slapd ] || echo "$package"
		done
}
download() { # APT-OPTIONS
	packages=$(wanted "$1")
	echo "$packages" | grep -qx slapd || return 1
	mkdir -p "$partial/packages"
	# shellcheck disable=SC2086 # several options and packages
	(cd "$partial/packages" && apt-get $1 -qq download $packages) >"$partial/log" 2>&1
}

echo "getting slapd from this system's packages…" >&2
if ! download '-o APT::Sandbox::User='; then
	# shellcheck disable=SC2086 # several options
	apt-get $own -qq update >"$partial/log" 2>&1 ||
		fail "the lists of packages cannot be read: $(tail -n 3 "$partial/log")" "see that 'apt-get update' works, or install slapd"
	download "$own" ||
		fail "the packages of slapd cannot be got: $(tail -n 3 "$partial/log")" "see that 'apt-get download slapd' works, or install slapd"
fi

unpacked=$partial/unpacked
for package in "$partial"/packages/*.deb; do
	dpkg -x "$package" "$unpacked"
done
mkdir "$tree/lib"
find "$unpacked/usr/lib" "$unpacked/lib" -path '*-linux-*' -name 'lib*.so.*' -exec mv {} "$tree/lib/" \; 2>/dev/null || true
mv "$unpacked/usr/sbin/slapd" "$tree/slapd"
mv "$unpacked/etc/ldap/schema" "$tree/schema"
mv "$unpacked/usr/lib/ldap" "$tree/modules"
works "$tree" || fail "the unpacked slapd does not work: $(tail -n 3 "$tree/probe.log")" "install slapd"
finish
