#!/bin/sh
# Installs unbloat from a release's files, which stand beside this script. Unless
# --yes is given it changes nothing, and prints what it would do.
set -eu

usage() {
	cat <<'END'
usage: sh install.sh [--yes] [--prefix DIR] [--key KEY] [--from DIR]
       sh install.sh --remove [--yes] [--prefix DIR]

  --yes         do it; without, only print what would be done
  --prefix DIR  where to install (/usr/local)
  --key KEY     minisign's public key of who made the release: the key, or a file
                with it; the release is then refused if it is not signed with it
  --from DIR    where the release's files are (beside this script)
  --remove      take away what was installed there
END
}

die() {
	code=$1
	shift
	echo "install.sh: $*" >&2
	exit "$code"
}

yes='' prefix=/usr/local key='' remove='' from=$(dirname "$0")
while [ $# -gt 0 ]; do
	case $1 in
	--yes) yes=1 ;;
	--remove) remove=1 ;;
	--prefix | --key | --from)
		[ $# -ge 2 ] || die 2 "$1 takes a value"
		case $1 in --prefix) prefix=$2 ;; --key) key=$2 ;; --from) from=$2 ;; esac
		shift
		;;
	-h | --help) usage && exit 0 ;;
	*) usage >&2 && die 2 "$1 is not known" ;;
	esac
	shift
done
case $prefix in /*) ;; *) die 2 "--prefix $prefix: must begin with /" ;; esac
prefix=${prefix%/}
list=$prefix/share/doc/unbloat/installed

# do_it runs a command, or prints it.
do_it() {
	if [ "$yes" ]; then "$@"; else echo "would run: $*"; fi
}

if [ "$remove" ]; then
	[ -r "$list" ] || die 5 "$list is not there, so nothing was installed below $prefix by this script"
	while IFS= read -r f; do
		case $f in /* | *..*) die 1 "$list names $f, which this script did not install" ;; esac
		do_it rm -f "$prefix/$f"
	done <"$list"
	do_it rm -f "$list"
	[ "$yes" ] && rmdir "$prefix/share/doc/unbloat" 2>/dev/null || true
	[ "$yes" ] || echo "Nothing was changed. Add --yes to do this."
	exit 0
fi

case $(uname -s) in
Linux) os=linux ;;
FreeBSD) os=freebsd ;;
OpenBSD) os=openbsd ;;
Darwin) os=darwin ;;
*) die 5 "there is no tarball for $(uname -s)" ;;
esac
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
armv7* | armv8l) arch=arm ;;
riscv64) arch=riscv64 ;;
mips) # the same word for both orders of bytes; the sixth byte of a program tells
	case $(dd if=/bin/sh bs=1 skip=5 count=1 2>/dev/null | tr '\1\2' 'LB') in
	L) arch=mipsle ;;
	B) arch=mips ;;
	*) die 5 "the order of this processor's bytes can't be told from /bin/sh" ;;
	esac
	;;
mipsel) arch=mipsle ;;
*) die 5 "there is no tarball for the processor $(uname -m)" ;;
esac

found=
for f in "$from"/unbloat-*-"$os-$arch".tar.gz; do
	[ -e "$f" ] || die 5 "$from has no unbloat-VERSION-$os-$arch.tar.gz"
	[ -z "$found" ] || die 5 "$from has several releases: $found and $f"
	found=$f
done
[ -r "$from/SHA256SUMS" ] || die 5 "$from has no SHA256SUMS, by which the tarball is checked"

# What is checked is a copy that nobody else can change.
tmp=$(mktemp -d "${TMPDIR:-/tmp}/unbloat-install.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP
cp "$from/SHA256SUMS" "$tmp/SHA256SUMS"
cp "$found" "$tmp/tarball"

if [ "$key" ]; then
	command -v minisign >/dev/null || die 5 "--key needs the program minisign"
	[ -r "$from/SHA256SUMS.minisig" ] || die 1 "$from has no SHA256SUMS.minisig: the release is not signed"
	cp "$from/SHA256SUMS.minisig" "$tmp/SHA256SUMS.minisig"
	case $key in */* | *.pub) option=-p ;; *) option=-P ;; esac
	minisign -V -q "$option" "$key" -m "$tmp/SHA256SUMS" || die 1 "SHA256SUMS is not signed with that key"
	echo "signature: good"
else
	echo "signature: not checked, since no --key was given"
fi

want=$(awk -v name="$(basename "$found")" '$2 == name { print $1 }' "$tmp/SHA256SUMS")
[ "$want" ] || die 1 "SHA256SUMS does not name $(basename "$found")"
if command -v sha256sum >/dev/null; then
	got=$(sha256sum "$tmp/tarball")
elif command -v shasum >/dev/null; then
	got=$(shasum -a 256 "$tmp/tarball")
elif command -v sha256 >/dev/null; then
	got=$(sha256 -q "$tmp/tarball")
else
	die 5 "none of sha256sum, shasum and sha256 is here"
fi
[ "${got%% *}" = "$want" ] || die 1 "$found is not what SHA256SUMS says: damaged or exchanged"
echo "checksum: good"

mkdir "$tmp/tree"
gzip -dc "$tmp/tarball" | (cd "$tmp/tree" && tar xf -)
tree=$(echo "$tmp"/tree/*)
[ -x "$tree/bin/unbloat" ] || die 1 "$found has no bin/unbloat"
(cd "$tree" && find . -type f) | sed 's,^\./,,' | sort >"$tmp/files"

while IFS= read -r f; do
	if [ -z "$yes" ]; then
		echo "would install $prefix/$f"
		continue
	fi
	mkdir -p "$prefix/$(dirname "$f")"
	# Replaced at once: whoever runs the old one goes on with it.
	cp "$tree/$f" "$prefix/$f.new"
	case $f in bin/*) chmod 755 "$prefix/$f.new" ;; *) chmod 644 "$prefix/$f.new" ;; esac
	mv -f "$prefix/$f.new" "$prefix/$f"
done <"$tmp/files"
if [ "$yes" ]; then
	cp "$tmp/files" "$list"
	chmod 644 "$list"
	echo "installed: $("$prefix/bin/unbloat" --version)"
else
	echo "Nothing was changed. Add --yes to do this."
fi
