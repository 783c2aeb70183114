package openbsd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/host"
	"unbloat/internal/host/conf"
	"unbloat/internal/mechanism/altq"
	"unbloat/internal/mechanism/pfqueue"
	"unbloat/internal/mechanism/tc"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// Shapers explains every queue that is loaded, whoever made it.
func (b *Backend) Shapers(ctx context.Context, wan string) ([]host.Shaped, error) {
	now, err := b.Observe(ctx, plan.Plan{WAN: wan}, nil)
	if err != nil {
		return nil, err
	}
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	ours := b.ours(s, wan)
	out := []host.Shaped{}
	for _, line := range s.Live {
		x := host.Shaped{Ours: slices.Contains(ours, line), Counters: []tc.Counters{}}
		if b.Altq {
			x.Device, x.Queue, x.Rate = word(line, "on"), "HFSC with a FIFO", rate(word(line, "bandwidth"))
		} else if rs, err := pfqueue.Parse(strings.ReplaceAll(line, " parent "+word(line, "parent"), " on "+word(line, "parent"))); err == nil && len(rs.Queues) == 1 {
			q := rs.Queues[0]
			x.Device, x.Queue, x.Rate = q.Device, "a FIFO of "+fmt.Sprint(max(q.Qlimit, 50))+" packets", max(q.Max, q.Bandwidth)
			if q.Flows != 0 && q.Min == 0 {
				x.Queue = "FQ-CoDel (5 ms, 100 ms, no ECN)"
			}
		}
		whose := "not unbloat's"
		if x.Ours {
			whose = "unbloat's"
		}
		x.Says = fmt.Sprintf("what leaves %s is held to %s by %s (%s): %s", x.Device, x.Rate.Short(), x.Queue, whose, line)
		if x.Rate == 0 {
			x.Says = fmt.Sprintf("what leaves %s goes through %s, which holds no rate (%s): %s", x.Device, x.Queue, whose, line)
		}
		out = append(out, x)
	}
	return out, nil
}

// word returns what follows key.
func word(line, key string) string {
	w := strings.Fields(line)
	if i := slices.Index(w, key); i >= 0 && i+1 < len(w) {
		return w[i+1]
	}
	return ""
}

// rate reads a bandwidth as pfctl shows it; 0 if it is none.
func rate(s string) unit.Rate {
	rs, err := altq.Parse("altq on x0 bandwidth " + s + " hfsc queue { q }\nqueue q bandwidth 100% hfsc ( default )\n")
	if err != nil || len(rs.Interfaces) == 0 {
		return 0
	}
	return rs.Interfaces[0].Bandwidth.Rate
}
