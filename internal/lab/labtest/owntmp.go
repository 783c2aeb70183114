package labtest

// OwnTmp returns argv as a command that has the directory tmp as its /tmp, with which
// it needs root. The directory sees stays visible there under its own name. Watchdogs
// of routers are in /tmp, and one /tmp for all tests of a machine would show a router
// those of others; a guest of the lab sees the host's.
func OwnTmp(tmp, sees string, argv ...string) []string {
	const script = `set -e
in=${2#/tmp/}
if [ "$in" != "$2" ]; then mkdir -p "$1/$in"; mount --bind "$2" "$1/$in"; fi
mount --rbind "$1" /tmp
shift 2
exec "$@"`
	return append([]string{"unshare", "--mount", "sh", "-c", script, "sh", tmp, sees}, argv...)
}
