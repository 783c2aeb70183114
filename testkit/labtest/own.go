package labtest

import "strconv"

// Own returns argv as a command that has the directory dir in place of another, such as
// /run or /tmp, for which it needs root. What sees lists stays visible there. Watchdogs of
// routers are in /run, and one /run for all tests of a machine would show a router those
// of others; a guest of the lab sees the host's /tmp.
func Own(place, dir string, sees []string, argv ...string) []string {
	const script = `set -e
place=$1 dir=$2 left=$3
shift 3
while [ "$left" -gt 0 ]; do
	in=${1#"$place"/}
	if [ "$in" != "$1" ]; then mkdir -p "$dir/$in"; mount --rbind "$1" "$dir/$in"; fi
	shift
	left=$((left - 1))
done
mount --rbind "$dir" "$place"
exec "$@"`
	words := append([]string{"unshare", "--mount", "sh", "-c", script, "sh", place, dir, strconv.Itoa(len(sees))}, sees...)
	return append(words, argv...)
}
