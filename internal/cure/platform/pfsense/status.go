package pfsense

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
	"unbloat/internal/cure/platform/conf"
)

// Shapers explains every limiter in config.xml, ours and others: its rate, its
// queue, the rules that send packets there, and whether the kernel has it.
func (b *Backend) Shapers(ctx context.Context, wan string) ([]platform.Shaped, error) {
	s, err := conf.Observed(ctx, b, wan)
	if err != nil {
		return nil, err
	}
	root, err := bsd.ParseConfig(s.Files.Text(Config))
	if err != nil {
		return nil, err
	}
	section := root.Child("dnshaper")
	if section == nil {
		return []platform.Shaped{}, nil
	}
	ls, err := dummynet.ParseLimiters(section.String())
	if err != nil {
		return nil, fmt.Errorf("read the limiters of %s: %w", Config, err)
	}
	kernel, err := b.kernel(ctx)
	if err != nil {
		return nil, err
	}
	shown, err := platform.Output(ctx, b.Runner, "dnctl", "queue", "show")
	if err != nil && len(kernel) > 0 {
		return nil, b.Explain(fmt.Errorf("read the queues: %w", err))
	}
	counts := dummynet.ParseCounts(string(shown))
	limiters, err := b.made(ctx, RulesLimiter)
	if err != nil {
		return nil, err
	}
	given := numbersOf(root, limiters)
	out := []platform.Shaped{}
	for _, l := range ls.Queues {
		rate, err := l.Rate()
		if err != nil {
			return nil, err
		}
		x := platform.Shaped{Device: "limiter " + l.Name, Ours: strings.HasPrefix(l.Name, ourLimiter), Rate: rate, Queue: l.Words(), Counters: []tc.Counters{}}
		numbers := given.of[strconv.Itoa(l.Number)]
		for i, q := range on(l) {
			if i >= len(numbers) {
				break
			}
			if c, ok := counts[numbers[i]]; ok {
				x.Counters = append(x.Counters, tc.Counters{Device: x.Device, Kind: "queue", Handle: q.Name, Bytes: c.Bytes, Packets: c.Packets,
					Drops: c.Drops, BacklogBytes: c.BacklogSize, BacklogPkts: c.BacklogPkts})
			}
		}
		whose := "not unbloat's"
		if x.Ours {
			whose = "unbloat's"
		}
		x.Says = fmt.Sprintf("it holds to %s, by %s (%s): %s; %s", rate.Short(), x.Queue, whose, fedBy(root, l), runs(l, numbers, kernel))
		if l.Name == dummynet.ControlLimiter {
			x = bsd.Control(x, fedBy(root, l)+"; "+runs(l, numbers, kernel))
		}
		out = append(out, x)
	}
	return out, nil
}

// fedBy returns the names of rules that send packets to a limiter.
func fedBy(root *bsd.ConfigNode, l dummynet.Limiter) string {
	names := []string{l.Name}
	for _, q := range l.Children {
		names = append(names, q.Name)
	}
	var rules []string
	for _, r := range root.Child("filter").All("rule") {
		way := ""
		switch {
		case r.Child("disabled") != nil:
			continue
		case slices.Contains(names, r.Value("dnpipe")):
			way = "what goes with connections"
		case slices.Contains(names, r.Value("pdnpipe")):
			way = "what comes back of connections"
		default:
			continue
		}
		where := " of the rule " + fmt.Sprintf("%q", r.Value("descr")) + " on " + r.Value("interface")
		if d := r.Value("direction"); d != "" {
			where += " (" + d + ")"
		}
		rules = append(rules, way+where)
	}
	if most := 4; len(rules) > most {
		return fmt.Sprintf("%d rules, the last of which fits decides; the first takes %s", len(rules), rules[0])
	}
	if len(rules) == 0 {
		return "nothing, since no rule sends packets there"
	}
	return strings.Join(rules, "; ")
}

// on returns a limiter's enabled queues.
func on(l dummynet.Limiter) []dummynet.LimiterQueue {
	return slices.DeleteFunc(slices.Clone(l.Children), func(q dummynet.LimiterQueue) bool { return q.Enabled == "" })
}

// runs reports whether the kernel has the limiter, with its queues at the
// numbers that pfSense assigned.
func runs(l dummynet.Limiter, numbers []int, kernel []string) string {
	if l.Enabled != "on" {
		return "it is off"
	}
	l.Children = on(l)
	if len(numbers) != len(l.Children) {
		return fmt.Sprintf("pfSense made %d of its %d queues: Status: System Logs says why", len(numbers), len(l.Children))
	}
	want, _, err := dummynet.Parse(dummynet.Limiters{Queues: []dummynet.Limiter{l}}.RulesLimiter(1))
	if err != nil {
		return "pfSense makes of it what dnctl refuses: " + err.Error()
	}
	for i := range want.Queues {
		want.Queues[i].Number = numbers[i]
	}
	for _, line := range withoutWeights(want.ShownLines()) {
		if !slices.Contains(kernel, line) {
			return "the kernel does not have it so (" + line + "): Status: Filter Reload"
		}
	}
	return "it runs"
}
