package opnsense

import (
	"encoding/json"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/platform"
	"unbloat/unit"
)

// Settled returns the state after the next reconfigure: the rules that run are those
// that are saved, and saved pipes and queues have the rates and weights that are
// saved. Pipes and queues that are switched off, or whose pipe is gone, are not
// loaded, and stay as they run.
func (b *Backend) Settled(before platform.State) (platform.State, error) {
	s, err := decode(before)
	if err != nil {
		return nil, err
	}
	loaded := func(kind, uuid string) bool {
		return slices.ContainsFunc(s.Items, func(x Item) bool { return x.Kind == kind && x.UUID == uuid && x.Fields["enabled"] == "1" })
	}
	live := []string{}
	for _, x := range s.Items {
		line, loads := "", loaded(x.Kind, x.UUID)
		switch x.Kind {
		case "pipe":
			rate, err := unit.ParseRate(x.Fields["bandwidth"] + x.Fields["bandwidthMetric"])
			if err != nil {
				return nil, err
			}
			line = pipeLine(x.UUID, rate)
		case "queue":
			line, loads = queueLine(x.UUID, x.Fields["weight"]), loads && loaded("pipe", x.Fields["pipe"])
		case "rule":
			if line = ruleLine(x.UUID); loads && (loaded("queue", x.Fields["target"]) || loaded("pipe", x.Fields["target"])) {
				live = append(live, line)
			}
			continue
		}
		if loads {
			live = append(live, line)
			continue
		}
		for _, l := range s.Live {
			if strings.HasPrefix(l, x.Kind+" "+x.UUID+" ") {
				live = append(live, l)
			}
		}
	}
	slices.Sort(live)
	s.Live = live
	return json.Marshal(s)
}

// pipeLine is a running pipe's line in a state.
func pipeLine(uuid string, r unit.Rate) string {
	return "pipe " + uuid + " bw " + strings.Join(strings.Fields(dummynet.ShownRate(r)), " ")
}

func queueLine(uuid, weight string) string { return "queue " + uuid + " weight " + weight }

func ruleLine(uuid string) string { return "rule " + uuid }
