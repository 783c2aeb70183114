#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What configd's actions do. Answers are JSON.

here=$(dirname "$0")
etc=${UNBLOAT_ETC:-/usr/local/etc/unbloat}
program=${UNBLOAT_PROGRAM:-/usr/local/bin/unbloat}
service=${UNBLOAT_SERVICE:-/usr/local/etc/rc.d/unbloatd}

# environment reads the key and the address of this router's API.
environment()
{
	[ -r "$etc/api.env" ] || return 0
	set -a
	. "$etc/api.env"
	set +a
}

# setup renews that file. It says whether there was something new.
setup()
{
	before=$(cat "$etc/api.env" 2>/dev/null)
	"$here/setup.php" || return 1
	[ "$before" != "$(cat "$etc/api.env")" ]
}

# said prints text as the JSON of an answer: {"ok":…,"says":"…"}.
said()
{
	printf '{"ok":%s,"says":"%s"}\n' "$1" "$(printf %s "$2" | tr '\n\t' '  ' | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"
}

# asked runs the program, and answers what it says on its way out.
asked()
{
	if says=$("$program" "$@" 2>&1); then said true "$says"; else said false "$says"; fi
}

# calls has the daemon do something, with arguments as JSON, and prints its answer.
calls()
{
	environment
	printf %s "$2" | "$program" rpcd call "$1" --config "$etc/unbloat.toml"
}

case $1 in
start | restart)
	setup
	"$service" "$1"
	;;
stop)
	"$service" onestop
	;;
reload)
	# A daemon that runs has read the key when it started.
	if setup; then "$service" restart; else "$service" reload; fi
	;;
look)
	# Where no daemon runs there is nothing to tell.
	environment
	"$program" daemon --look
	;;
check)
	asked daemon --check --config "$etc/unbloat.toml"
	;;
show)
	environment
	# What differs from what was applied is in the answer; then the exit code is 1.
	answer=$("$program" status --json --router "$ROUTER" 2>"$etc/.said")
	if [ -n "$answer" ]; then printf '%s\n' "$answer"; else printf '{"error":%s\n' "$(said false "$(cat "$etc/.said")" | sed 's/^.*"says"://')"; fi
	rm -f "$etc/.said"
	;;
off)
	environment
	asked revert --wan "$2" --router "$ROUTER"
	;;
on)
	environment
	asked apply --again --yes --wan "$2" --router "$ROUTER"
	;;
test)
	environment
	calls test "{\"wan\":\"$2\",\"router\":\"$ROUTER\"}"
	;;
run)
	calls status '{}'
	;;
endrun)
	calls stop '{}'
	;;
enter)
	calls enter '{}'
	;;
visit)
	calls look '{}'
	;;
*)
	echo "usage: $0 start|stop|restart|reload|look|check|show|off WAN|on WAN|test WAN|run|endrun|enter|visit" >&2
	exit 2
	;;
esac
