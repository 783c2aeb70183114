package pfsense

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/platform"
	"unbloat/internal/platform/conf"
)

// Compare returns the steps from actual to wanted: either config.xml as it was,
// to the byte, or our elements set by pfSense's own functions; then its rules
// are made anew, and what of ours the kernel still holds is deleted, which
// pfSense leaves standing.
func (b *Backend) Compare(actual, wanted platform.State) ([]platform.Step, []string, error) {
	a, err := conf.Decode(actual)
	if err != nil {
		return nil, nil, err
	}
	w, err := conf.Decode(wanted)
	if err != nil {
		return nil, nil, err
	}
	diffs := append(conf.Differences(a.Files, w.Files), conf.LiveDifferences(a.Live, w.Live)...)
	if len(diffs) == 0 {
		return nil, nil, nil
	}
	steps := conf.Steps(a.Files, w.Files, nil)
	if w.Files.Get(Config).Exists {
		steps = append(steps, shell(reload()))
	} else {
		steps = append(steps, shell(set(w.Live)))
	}
	return append(steps, deletions(a.Live, w.Live)...), diffs, nil
}

// deletions delete our pipes that only a has; a pipe takes its scheduler with it.
func deletions(a, w []string) (out []platform.Step) {
	for _, n := range []int{first, first + 1} {
		has := func(lines []string) bool {
			return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, kernelLine(n)) })
		}
		if has(a) && !has(w) {
			out = append(out, platform.Step{Argv: []string{"dnctl", "pipe", "delete", strconv.Itoa(n)}})
		}
	}
	return out
}

// kernelLine is how Observe's line of a pipe begins.
func kernelLine(n int) string { return fmt.Sprintf("kernel: pipe %d ", n) }

// shell is a step of pfSense's PHP shell, which runs what it has read at `exec`.
func shell(lines []string) platform.Step {
	return platform.Step{Argv: []string{Shell}, Stdin: strings.Join(lines, "\n") + "\nexec\nexit\n"}
}

// reload makes pfSense read config.xml anew, past its cache, and load its rules.
func reload() []string {
	return []string{
		`require_once("filter.inc");`,
		`require_once("shaper.inc");`,
		`@unlink("/tmp/config.cache");`,
		readConfig,
		`filter_configure_sync();`,
		sweepGiven,
		sweepQueues,
	}
}

// PHP that every script has. pfSense after 2.8 has no parse_config(), and before it
// no config_read_file(). Queues of our pipes that pfSense no longer has stay in the
// kernel; their numbers are known only once it has made its rules anew.
const (
	readConfig  = `if (function_exists("config_read_file")) { config_read_file(false, false); } else { parse_config(true); }`
	sweepGiven  = `$given = array(); foreach (get_unique_dnqueue_list() as $number) { $given[] = ltrim($number, "?"); }`
	sweepQueues = `foreach (explode("\n", strval(shell_exec("/sbin/dnctl queue show 2>/dev/null"))) as $l) { if (preg_match('/^q0*(\d+) .* sched (7001|7002) /', $l, $m) && !in_array($m[1], $given)) { mwexec("/sbin/dnctl queue delete " . $m[1]); } }`
)

// set puts our elements in place of those that are there, saves config.xml, and
// loads the rules. Our limiters come last, so that no other queue gets another
// number: connections keep the number with which they were opened.
func set(live []string) []string {
	var queues, rules []string
	for _, l := range live {
		if q, ok := strings.CutPrefix(l, "config: queue "); ok {
			queues = append(queues, q)
		}
		if r, ok := strings.CutPrefix(l, "config: rule "); ok {
			rules = append(rules, r)
		}
	}
	ours := `{"queue":[` + strings.Join(queues, ",") + `],"rule":[` + strings.Join(rules, ",") + `]}`
	return []string{
		`global $config;`,
		`require_once("filter.inc");`,
		`require_once("shaper.inc");`,
		readConfig,
		`$ours = json_decode('` + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(ours) + `', true);`,
		`$theirs = function($x) { return strncmp($x["name"] ?? "", "` + ourLimiter + `", ` + strconv.Itoa(len(ourLimiter)) + `) != 0 && strncmp($x["descr"] ?? "", "` + ourRule + `", ` + strconv.Itoa(len(ourRule)) + `) != 0; };`,
		`foreach (array("dnshaper" => "queue", "filter" => "rule") as $section => $list) { if (!is_array($config[$section] ?? "")) { $config[$section] = array(); } $old = $config[$section][$list] ?? array(); $old = array_values(array_filter(is_array($old) ? $old : array(), $theirs)); $config[$section][$list] = $list == "queue" ? array_merge($old, $ours[$list]) : array_merge($ours[$list], $old); }`,
		`write_config("unbloat: limiters");`,
		`filter_configure_sync();`,
		sweepGiven,
		sweepQueues,
	}
}

// Restore returns the commands that lead back to a snapshot from any state.
func (b *Backend) Restore(before platform.State) ([]platform.Step, error) {
	s, err := conf.Decode(before)
	if err != nil {
		return nil, err
	}
	steps := append(s.Files.Restore(), shell(reload()))
	all := []string{kernelLine(first), kernelLine(first + 1)}
	return append(steps, deletions(all, s.Live)...), nil
}
