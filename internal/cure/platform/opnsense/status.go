package opnsense

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
	"unbloat/unit"
)

// Shapers explains every saved pipe, ours and others: its rate, its queueing,
// the rules that send packets there, and whether it runs.
func (b *Backend) Shapers(ctx context.Context, _ string) ([]platform.Shaped, error) {
	out, err := platform.Output(ctx, b.Runner, "GET", settings+"get")
	if err != nil {
		return nil, fmt.Errorf("read the traffic shaper's settings: %w", err)
	}
	all, err := parseItems(out)
	if err != nil {
		return nil, err
	}
	if out, err = platform.Output(ctx, b.Runner, "GET", statistics); err != nil {
		return nil, fmt.Errorf("read the traffic shaper's statistics: %w", err)
	}
	running := runningRates(out)
	shapers := []platform.Shaped{}
	for _, pipe := range all {
		if pipe.Kind != "pipe" {
			continue
		}
		x := platform.Shaped{Device: "pipe " + pipe.Fields["number"], Ours: ours("pipe", pipe.UUID), Queue: queueing(pipe.Fields), Counters: []tc.Counters{}}
		x.Rate, _ = unit.ParseRate(pipe.Fields["bandwidth"] + pipe.Fields["bandwidthMetric"])
		whose, runs := "not unbloat's", "it does not run: Apply it"
		if x.Ours {
			whose = "unbloat's"
		}
		if r, ok := running[pipe.UUID]; ok && r == dummynet.ShownRate(x.Rate) {
			runs = "it runs"
		} else if ok {
			runs = "it runs with " + strings.TrimSpace(r) + " instead: Apply it"
		}
		x.Says = fmt.Sprintf("%q holds to %s, by %s (%s): %s; %s", pipe.Fields["description"], x.Rate.Short(), x.Queue, whose, fedBy(all, pipe.UUID), runs)
		if pipe.UUID == dummynet.ControlUUID() {
			x = bsd.Control(x, fedBy(all, pipe.UUID)+"; "+runs)
		}
		shapers = append(shapers, x)
	}
	sort.Slice(shapers, func(i, j int) bool { return shapers[i].Device < shapers[j].Device })
	return shapers, nil
}

// queueing describes how a pipe stores packets, for people.
func queueing(f map[string]string) string {
	set := func(name, unit string) string {
		if f[name] == "" {
			return ""
		}
		return " " + strings.TrimPrefix(strings.TrimPrefix(name, "fqcodel_"), "codel_") + " " + f[name] + unit
	}
	codel := set("codel_target", " ms") + set("codel_interval", " ms")
	if f["codel_ecn_enable"] == "1" {
		codel += " ECN"
	} else {
		codel += " no ECN"
	}
	switch {
	case f["scheduler"] == "fq_codel":
		return "FQ-CoDel" + codel + set("fqcodel_quantum", "") + set("fqcodel_limit", "") + set("fqcodel_flows", "")
	case f["codel_enable"] == "1":
		return "CoDel" + codel
	case f["scheduler"] == "" || f["scheduler"] == "wf2q+":
		return "weighted queues (WF2Q+), each a FIFO"
	}
	return f["scheduler"]
}

// fedBy returns the names of rules that send packets to a pipe or one of its
// queues.
func fedBy(all []Item, pipe string) string {
	targets := map[string]string{pipe: ""}
	for _, q := range all {
		if q.Kind == "queue" && q.Fields["pipe"] == pipe {
			targets[q.UUID] = fmt.Sprintf(" by the queue %q of weight %s", q.Fields["description"], q.Fields["weight"])
		}
	}
	var rules []Item
	for _, r := range all {
		if _, ok := targets[r.Fields["target"]]; ok && r.Kind == "rule" && r.Fields["enabled"] == "1" {
			rules = append(rules, r)
		}
	}
	sort.Slice(rules, func(i, j int) bool {
		a, b := rules[i], rules[j]
		return cmp.Compare(len(a.Fields["sequence"]), len(b.Fields["sequence"]))*2+strings.Compare(a.Fields["sequence"], b.Fields["sequence"]) < 0
	})
	var out []string
	for _, r := range rules {
		f := r.Fields
		direction := f["direction"]
		if direction == "" {
			direction = "in and out"
		}
		out = append(out, fmt.Sprintf("%q (%s %s of %s)%s", f["description"], f["proto"], direction, f["interface"], targets[f["target"]]))
	}
	if len(out) == 0 {
		return "nothing, since no rule sends packets there"
	}
	return strings.Join(out, "; ")
}

// runningRates returns each running pipe's rate as dnctl(8) shows it.
func runningRates(b []byte) map[string]string {
	var all struct {
		Items []struct{ Type, UUID, BW string }
	}
	out := map[string]string{}
	if json.Unmarshal(b, &all) != nil {
		return out
	}
	for _, x := range all.Items {
		if r, err := unit.ParseRate(x.BW); err == nil && x.Type == "pipe" {
			out[x.UUID] = dummynet.ShownRate(r)
		}
	}
	return out
}
