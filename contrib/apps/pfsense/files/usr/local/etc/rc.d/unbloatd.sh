#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# pfSense starts at boot what ends in .sh here. The service itself is the port's. It
# starts if the page has written a configuration, which it does when it is turned on.

service=${UNBLOAT_SERVICE:-/usr/local/etc/rc.d/unbloatd}
export UNBLOAT_STATE_DIR=${UNBLOAT_STATE_DIR:-/var/run/unbloat}

case $1 in
start | restart)
	[ -s "${UNBLOAT_ETC:-/usr/local/etc/unbloat}/unbloat.toml" ] || exit 0
	exec "$service" "one$1"
	;;
stop | status | reload)
	exec "$service" "one$1"
	;;
*)
	echo "usage: $0 start|stop|restart|reload|status" >&2
	exit 2
	;;
esac
