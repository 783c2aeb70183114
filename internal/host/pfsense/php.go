package pfsense

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/host"
	"unbloat/internal/host/conf"
	"unbloat/internal/mechanism/dummynet"
)

// Compare returns the steps from actual to wanted: either config.xml as it was,
// to the byte, or our elements set by pfSense's own functions; then its rules
// are made anew, and what of ours the kernel still holds is deleted, which
// pfSense leaves standing.
func (b *Backend) Compare(actual, wanted host.State) ([]host.Step, []string, error) {
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

// deletions delete pipes and queues that only a has, queues first; a pipe takes
// its scheduler with it.
func deletions(a, w []string) (out []host.Step) {
	pipes, queues := dummynet.LimiterNumbers(first)
	for _, k := range []struct {
		kind    string
		numbers []int
	}{{"queue", queues}, {"pipe", pipes}} {
		for _, n := range k.numbers {
			has := func(lines []string) bool {
				return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, kernelLine(k.kind, n)) })
			}
			if has(a) && !has(w) {
				out = append(out, host.Step{Argv: []string{"dnctl", k.kind, "delete", strconv.Itoa(n)}})
			}
		}
	}
	return out
}

// kernelLine is how Observe's line of a pipe or queue begins.
func kernelLine(kind string, n int) string { return fmt.Sprintf("kernel: %s %d ", kind, n) }

// shell is a step of pfSense's PHP shell, which runs what it has read at `exec`.
func shell(lines []string) host.Step {
	return host.Step{Argv: []string{Shell}, Stdin: strings.Join(lines, "\n") + "\nexec\nexit\n"}
}

// reload makes pfSense read config.xml anew, past its cache, and load its rules.
func reload() []string {
	return []string{
		`require_once("filter.inc");`,
		`require_once("shaper.inc");`,
		`@unlink("/tmp/config.cache");`,
		`parse_config(true);`,
		`filter_configure_sync();`,
	}
}

// set puts our elements in place of those that are there, saves config.xml, and
// loads the rules.
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
		`parse_config(true);`,
		`$ours = json_decode('` + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(ours) + `', true);`,
		`$theirs = function($x) { return strncmp($x["name"] ?? "", "` + ourLimiter + `", ` + strconv.Itoa(len(ourLimiter)) + `) != 0 && strncmp($x["descr"] ?? "", "` + ourRule + `", ` + strconv.Itoa(len(ourRule)) + `) != 0; };`,
		`foreach (array("dnshaper" => "queue", "filter" => "rule") as $section => $list) { if (!is_array($config[$section] ?? "")) { $config[$section] = array(); } $old = $config[$section][$list] ?? array(); $config[$section][$list] = array_merge($ours[$list], array_values(array_filter(is_array($old) ? $old : array(), $theirs))); }`,
		`write_config("unbloat: limiters");`,
		`filter_configure_sync();`,
	}
}

// Restore returns the commands that lead back to a snapshot from any state.
func (b *Backend) Restore(before host.State) ([]host.Step, error) {
	s, err := conf.Decode(before)
	if err != nil {
		return nil, err
	}
	steps := append(s.Files.Restore(), shell(reload()))
	var all []string
	pipes, queues := dummynet.LimiterNumbers(first)
	for _, n := range queues {
		all = append(all, kernelLine("queue", n))
	}
	for _, n := range pipes {
		all = append(all, kernelLine("pipe", n))
	}
	return append(steps, deletions(all, s.Live)...), nil
}
