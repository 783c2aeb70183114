#!/bin/sh
# The compiler that builds the lab's kernel: gcc, which reads the headers that most of
# the kernel's files include once and keeps them (a precompiled header, half of the
# build's time). What the makefiles define for one file only, -DKBUILD_MODNAME=... and
# the like, must then come after those headers, so it does in a header of its own.
# Where that does not compile, the file is compiled as it would be without.
here=${0%/*}

precompiled() {
	own=$here/$$.h
	: > "$own"
	for a do
		shift
		case $a in
		-D*KBUILD_*) a=${a#-D}; echo "#define ${a%%=*} ${a#*=}" >> "$own" ;;
		*) set -- "$@" "$a" ;;
		esac
	done
	[ -e "$here/headers.h.gch" ] || precompile "$@" || return
	gcc -Werror=invalid-pch -include "$here/headers.h" -include "$own" "$@"
}

# precompile makes them with the options of a file that is compiled.
precompile() {
	mkdir "$here/making" || return # another does
	cat > "$here/headers.h" <<-'END'
		#include <linux/kconfig.h>
		#include <linux/compiler_types.h>
		#include <net/sock.h>
	END
	next=
	for a do
		shift
		case $next$a in
		-o | -include) next=of: ;;
		of:* | -c | -Wp,* | *.c) next= ;;
		*) set -- "$@" "$a" ;;
		esac
	done
	gcc "$@" -x c-header "$here/headers.h" -o "$here/new.gch" && mv "$here/new.gch" "$here/headers.h.gch"
	rmdir "$here/making"
	[ -e "$here/headers.h.gch" ]
}

case " $* " in
*" -nostdinc "*" -c "*.c" ") precompiled "$@" 2> /dev/null || exec gcc "$@" ;;
*) exec gcc "$@" ;;
esac
