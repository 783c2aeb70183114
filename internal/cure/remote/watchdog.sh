#!/bin/sh
# unbloat's watchdog: it undoes a change that is not confirmed in time, or if the
# machine that made it can no longer reach this router. It needs only sh, sleep
# and a few small tools. It was made by unbloat and removes itself. It counts
# seconds, since the clock may be set.
dir=${0%/*}
PATH=@PATH@
LC_ALL=C
export PATH LC_ALL

run() { "$@" </dev/null >>"$dir/log" 2>&1; }
feed() { from=$1; shift; "$@" <"$dir/$from" >/dev/null 2>>"$dir/log"; }

# undo works from any state, so a command that fails does not stop it.
undo() {
	:
@UNDO@
}

# Whether the change is kept or undone is decided once: ln fails if the link exists,
# and the link has its content from the start.
fate() { cat "$dir/fate" 2>/dev/null; }
decide() { # kept|undone
	echo "$1" >"$dir/$1.new" && ln "$dir/$1.new" "$dir/fate" 2>/dev/null
	[ "$(fate)" = "$1" ]
}

# linger keeps the answer for a machine that has not received it yet.
linger() {
	for minute in 1 2 3 4 5 6 7 8 9 10; do
		for tick in 1 2 3 4 5 6 7 8 9 10 11 12; do
			[ -d "$dir" ] || exit 0
			sleep 5
		done
	done
	rm -rf "$dir"
	exit 0
}

watch() {
	beat= left=5
	while [ -d "$dir" ]; do
		[ "$(fate)" != kept ] || linger
		# An unreadable heartbeat is ignored: Korn shells, such as OpenBSD's, take
		# an empty word for the number 0.
		now=$(cat "$dir/beat" 2>/dev/null)
		if [ -n "$now" ] && [ "$now" != "$beat" ]; then
			beat=$now left=${now#* }
		fi
		if [ "$left" -le 0 ]; then
			decide undone
			# also if nothing can be written any more: only "kept" stops it, or a
			# machine that has received the answer and removed the directory
			if [ -d "$dir" ] && [ "$(fate)" != kept ]; then
				undo
				echo undone >"$dir/done"
				linger
			fi
		fi
		sleep 1
		left=$((left - 1))
	done
}

case $1 in
start)
	trap '' HUP INT TERM
	# a separate process: a function would keep our standard output open
	sh "$0" watch </dev/null >/dev/null 2>&1 &
	echo $! >"$dir/pid"
	echo armed
	;;
watch) watch ;;
renew) # NUMBER SECONDS
	[ -z "$(fate)" ] || exit 1
	echo "$2 $3" >"$dir/beat.$$" && mv -f "$dir/beat.$$" "$dir/beat" && [ -z "$(fate)" ]
	;;
alive)
	[ -z "$(fate)" ] && kill -0 "$(cat "$dir/pid")"
	;;
close) # repeated calls give the same answer
	decide kept && echo kept && exit 0
	fate
	exit 1
	;;
forget) # in one step, so that a running watch never sees a part of it
	mv "$dir" "$dir.gone" && rm -rf "$dir.gone"
	;;
settled) # whether a started undo has ended
	[ "$(fate)" != undone ] || [ -e "$dir/done" ]
	;;
esac
