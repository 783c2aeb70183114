#!/bin/sh
# unbloat's guard: it undoes a change that is not confirmed in time, or whose
# maker can no longer reach this router. It needs nothing but sh and sleep.
# Made by unbloat; it removes itself. Clocks are not trusted: it counts seconds.
dir=${0%/*}
PATH=@PATH@
LC_ALL=C
export PATH LC_ALL

run() { "$@" </dev/null >>"$dir/log" 2>&1; }
feed() { from=$1; shift; "$@" <"$dir/$from" >/dev/null 2>>"$dir/log"; }

# undo leads back from any state, so a command that fails does not stop it.
undo() {
	:
@UNDO@
}

watch() {
	beat= left=0
	while :; do
		if [ -d "$dir/closed" ] || [ ! -d "$dir" ]; then
			rm -rf "$dir"
			exit 0
		fi
		now=$(cat "$dir/beat" 2>/dev/null)
		if [ "$now" != "$beat" ]; then
			beat=$now left=${now#* }
		fi
		if [ "$left" -le 0 ]; then
			# whoever makes this directory decides: mkdir is atomic
			if mkdir "$dir/closed" 2>/dev/null; then
				undo
				echo undone >"$dir/undone"
				exit 0
			fi
			continue
		fi
		sleep 1
		left=$((left - 1))
	done
}

case $1 in
start)
	trap '' HUP INT TERM
	# a process of its own: a function would keep our standard output open
	sh "$0" watch </dev/null >/dev/null 2>&1 &
	echo $! >"$dir/pid"
	echo armed
	;;
watch) watch ;;
renew) # NUMBER SECONDS
	[ ! -d "$dir/closed" ] || exit 1
	echo "$2 $3" >"$dir/beat.new" && mv -f "$dir/beat.new" "$dir/beat" && [ ! -d "$dir/closed" ]
	;;
alive)
	[ ! -d "$dir/closed" ] && kill -0 "$(cat "$dir/pid")"
	;;
close)
	mkdir "$dir/closed" 2>/dev/null && exit 0
	[ ! -e "$dir/undone" ] || rm -rf "$dir"
	exit 1
	;;
esac
