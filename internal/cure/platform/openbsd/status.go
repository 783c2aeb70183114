package openbsd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
	"unbloat/unit"
)

// Shapers explains every loaded queue, ours and others: its rate, its queueing,
// the rules that send packets there, and settings that pfctl(8) silently
// accepts but that can't be intended.
func (b *Backend) Shapers(ctx context.Context, wan string) ([]platform.Shaped, error) {
	s, err := conf.Observed(ctx, b, wan)
	if err != nil {
		return nil, err
	}
	shown, err := platform.Output(ctx, b.Runner, "pfctl", "-vsq")
	if err != nil {
		return nil, b.Explain(fmt.Errorf("read the queues: %w", err))
	}
	out, err := platform.Output(ctx, b.Runner, "pfctl", "-sr")
	if err != nil {
		return nil, b.Explain(fmt.Errorf("read the rules: %w", err))
	}
	rules := strings.Split(string(out), "\n")
	ours := b.allOurs(ctx, s)
	if b.Altq {
		return altqShapers(pf.ParseALTQQueues(string(shown)), ours, rules, pf.ParseCounts(string(shown))), nil
	}
	queues, err := pf.ParseShown(string(shown))
	if err != nil {
		return nil, fmt.Errorf("read the queues: %w", err)
	}
	shapers := []platform.Shaped{}
	counts := pf.ParseCounts(string(shown))
	for _, q := range queues {
		x := platform.Shaped{Device: device(queues, q), Queue: queueing(q), Rate: max(q.Max, q.Bandwidth), Ours: slices.Contains(ours, q.String()), Counters: []tc.Counters{}}
		x.Says = explain(queues, q, x, rules)
		if c, ok := counts[q.Name]; ok {
			x.Counters = append(x.Counters, tc.Counters{Device: x.Device, Kind: "queue", Handle: q.Name, Bytes: c.Bytes, Packets: c.Packets, Drops: c.Drops, BacklogPkts: c.Waiting})
		}
		shapers = append(shapers, x)
	}
	return shapers, nil
}

// allOurs returns pfctl's output for those of our files that pf.conf includes.
func (b *Backend) allOurs(ctx context.Context, s conf.State) (out []string) {
	for _, wan := range includedWANs(s.Files.Text(PfConf)) {
		files, err := conf.Read(ctx, b.Runner, IncludeFile(wan))
		if err != nil {
			continue
		}
		out = append(out, b.ours(conf.State{Files: files}, wan)...)
	}
	return out
}

// includedWANs returns the WANs for which pf.conf has one of our lines.
func includedWANs(text string) (out []string) {
	before, after, _ := strings.Cut(includeLine("WAN"), "WAN")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, before); ok {
			if wan, ok := strings.CutSuffix(rest, after); ok {
				out = append(out, wan)
			}
		}
	}
	return out
}

// device returns the device of a queue's root.
func device(queues []pf.Queue, q pf.Queue) string {
	for range queues {
		if q.Device != "" {
			return q.Device
		}
		i := slices.IndexFunc(queues, func(p pf.Queue) bool { return p.Name == q.Parent })
		if i < 0 {
			break
		}
		q = queues[i]
	}
	return "?"
}

// queueing describes how a queue stores packets, for people.
func queueing(q pf.Queue) string {
	if q.Flows == 0 || q.Min != 0 {
		return fmt.Sprintf("a FIFO of %d packets", cmp.Or(q.Qlimit, 50))
	}
	return fmt.Sprintf("FQ-CoDel with %d flows (5 ms, 100 ms, no ECN)", q.Flows)
}

// explain returns a sentence about what a queue does.
func explain(queues []pf.Queue, q pf.Queue, x platform.Shaped, rules []string) string {
	var children []string
	for _, c := range queues {
		if c.Parent == q.Name && device(queues, c) == x.Device {
			children = append(children, c.Name)
		}
	}
	whose := whose(x.Ours)
	var says string
	switch {
	case x.Rate == 0:
		says = fmt.Sprintf("what leaves %s goes through queue %s, %s, which holds no rate (%s)", x.Device, q.Name, x.Queue, whose)
	case q.Max == 0:
		says = fmt.Sprintf("queue %s on %s is guaranteed %s, by %s (%s)", q.Name, x.Device, q.Bandwidth.Short(), x.Queue, whose)
	case len(children) > 0:
		says = fmt.Sprintf("what leaves %s is held to %s by queue %s and shared among %s (%s)", x.Device, x.Rate.Short(), q.Name, strings.Join(children, ", "), whose)
	case q.Parent != "":
		says = fmt.Sprintf("queue %s on %s is guaranteed %s and held to %s, by %s (%s)", q.Name, x.Device, q.Bandwidth.Short(), q.Max.Short(), x.Queue, whose)
	default:
		says = fmt.Sprintf("what leaves %s is held to %s by queue %s, %s (%s)", x.Device, x.Rate.Short(), q.Name, x.Queue, whose)
	}
	if q.Default {
		says += "; it takes what no rule assigns"
	}
	for _, r := range assigning(rules, q.Name) {
		says += "; it takes `" + r + "`"
	}
	for _, hint := range (pf.Ruleset{Queues: queues}).Lint() {
		if hint.Queue == q.Name {
			says += "; beware: " + hint.Text
		}
	}
	return says
}

func whose(ours bool) string {
	if ours {
		return "unbloat's"
	}
	return "not unbloat's"
}

// assigning returns the rules that send packets to the queue.
func assigning(rules []string, name string) (out []string) {
	for _, r := range rules {
		if slices.Contains(assigned(r), name) {
			out = append(out, strings.TrimSpace(r))
		}
	}
	return out
}

// assigned returns the queues of a rule in pfctl(8)'s output, current or old:
// `set (queue q)`, `set (prio 3, queue(q, r))`, `queue q`, `queue(q, r)`. Text
// in quotes is a label.
func assigned(rule string) (names []string) {
	parts := strings.Split(rule, `"`)
	bare := ""
	for i := 0; i < len(parts); i += 2 {
		bare += parts[i] + " "
	}
	words := strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ", ",", " ").Replace(bare))
	at := slices.Index(words, "queue") + 1
	if at == 0 || at == len(words) {
		return nil
	}
	if words[at] != "(" {
		return words[at : at+1]
	}
	for _, w := range words[at+1:] {
		if w == ")" {
			break
		}
		names = append(names, w)
	}
	return names
}

// altqShapers explains ALTQ's queues: first the root queues that pfctl makes
// itself.
func altqShapers(queues []pf.ALTQShownQueue, ours, rules []string, counts map[string]pf.Count) []platform.Shaped {
	own := func(q pf.ALTQShownQueue) bool { return slices.Contains(ours, q.Line) }
	roots, out := []platform.Shaped{}, []platform.Shaped{}
	for _, q := range queues {
		x := platform.Shaped{Device: q.Device, Queue: "HFSC", Rate: q.Bandwidth, Counters: []tc.Counters{}}
		if q.Root {
			if len(q.Queues) < 2 {
				continue
			}
			x.Ours = slices.ContainsFunc(pf.ParseALTQQueues(strings.Join(ours, "\n")), func(o pf.ALTQShownQueue) bool { return o.Device == q.Device })
			x.Says = fmt.Sprintf("what leaves %s is held to %s by ALTQ and shared among %s (%s)", x.Device, x.Rate.Short(), strings.Join(q.Queues, ", "), whose(x.Ours))
			roots = append(roots, x)
			continue
		}
		x.Ours = own(q)
		x.Queue = fmt.Sprintf("HFSC with a FIFO of %d packets", q.Qlimit)
		if c, ok := counts[q.Name]; ok {
			x.Counters = append(x.Counters, tc.Counters{Device: x.Device, Kind: "queue", Handle: q.Name, Bytes: c.Bytes, Packets: c.Packets, Drops: c.Drops, BacklogPkts: c.Waiting})
		}
		x.Says = fmt.Sprintf("what leaves %s is held to %s by queue %s, %s (%s)", x.Device, x.Rate.Short(), q.Name, x.Queue, whose(x.Ours))
		if q.Upperlimit > 0 { // one of several
			x.Rate = q.Upperlimit
			x.Says = fmt.Sprintf("queue %s on %s is guaranteed %s and held to %s, by %s (%s)", q.Name, x.Device, q.Bandwidth.Short(), x.Rate.Short(), x.Queue, whose(x.Ours))
		}
		if full := unit.Size(1514); x.Rate > 0 {
			x.Says += fmt.Sprintf(", which is up to %.0f ms", unit.Ms(x.Rate.Time(full*unit.Size(q.Qlimit))))
		}
		if q.Realtime > 0 {
			x.Says += "; its packets go first up to " + q.Realtime.Short()
		}
		if q.Default {
			x.Says += "; it takes what no rule assigns"
		}
		for _, r := range assigning(rules, q.Name) {
			x.Says += "; it takes `" + r + "`"
		}
		out = append(out, x)
	}
	return append(roots, out...)
}
