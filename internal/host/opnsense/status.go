package opnsense

import (
	"context"
	"encoding/json"
	"fmt"

	"unbloat/internal/host"
	"unbloat/internal/mechanism/dummynet"
	"unbloat/internal/mechanism/tc"
	"unbloat/unit"
)

// Shapers explains every pipe that is saved, whoever made it, and whether it runs.
func (b *Backend) Shapers(ctx context.Context, _ string) ([]host.Shaped, error) {
	out, err := host.Output(ctx, b.Runner, "GET", settings+"get")
	if err != nil {
		return nil, fmt.Errorf("read the traffic shaper's settings: %w", err)
	}
	var all struct {
		TS struct {
			Pipes struct {
				Pipe map[string]map[string]json.RawMessage `json:"pipe"`
			} `json:"pipes"`
		} `json:"ts"`
	}
	if err := json.Unmarshal(emptyLists(out), &all); err != nil {
		return nil, fmt.Errorf("read the traffic shaper's settings: %w", err)
	}
	if out, err = host.Output(ctx, b.Runner, "GET", statistics); err != nil {
		return nil, fmt.Errorf("read the traffic shaper's statistics: %w", err)
	}
	running := runningRates(out)
	shapers := []host.Shaped{}
	for uuid, raw := range all.TS.Pipes.Pipe {
		fields := map[string]string{}
		for name, v := range raw {
			fields[name] = value(v)
		}
		x := host.Shaped{Device: "pipe " + fields["number"], Ours: own("pipe", uuid) >= 0, Queue: fields["scheduler"], Counters: []tc.Counters{}}
		x.Rate, _ = unit.ParseRate(fields["bandwidth"] + fields["bandwidthMetric"])
		if x.Queue == "" {
			x.Queue = "weighted queues (WF2Q+)"
		}
		whose, runs := "not unbloat's", "it does not run: reconfigure"
		if x.Ours {
			whose = "unbloat's"
		}
		if r, ok := running[uuid]; ok && r == dummynet.ShownRate(x.Rate) {
			runs = "it runs"
		} else if ok {
			runs = "it runs with " + r + " instead: reconfigure"
		}
		x.Says = fmt.Sprintf("%q holds to %s, by %s (%s); %s", fields["description"], x.Rate.Short(), x.Queue, whose, runs)
		shapers = append(shapers, x)
	}
	return shapers, nil
}

// runningRates returns what each pipe that runs holds to, as dnctl(8) shows it.
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
