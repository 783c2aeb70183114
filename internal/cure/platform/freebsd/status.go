package freebsd

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
	"unbloat/unit"
)

// Shapers explains every pipe, ours and others: its rate, its queue, and the
// rules that send packets to it.
func (b *Backend) Shapers(ctx context.Context, wan string) ([]platform.Shaped, error) {
	s, err := conf.Observed(ctx, b, wan)
	if err != nil {
		return nil, err
	}
	shown, err := platform.Output(ctx, b.Runner, "dnctl", "queue", "show")
	if err != nil {
		return nil, b.Explain(fmt.Errorf("read the queues: %w", err))
	}
	counts := dummynet.ParseCounts(string(shown))
	out := []platform.Shaped{}
	mine := ours(s).ShownLines()
	for _, line := range s.Live {
		w := strings.Fields(line)
		if w[0] != "pipe" || len(w) < 5 {
			continue
		}
		x := platform.Shaped{Device: "pipe " + w[1], Queue: "a FIFO of " + w[len(w)-1] + " packets", Ours: slices.Contains(mine, line), Counters: []tc.Counters{}}
		if codel := slices.ContainsFunc(s.Live, func(l string) bool {
			f := strings.Fields(l)
			return f[0] == "queue" && f[3] == w[1] && len(f) > 6 && f[6] == "codel"
		}); codel {
			x.Queue = "weighted queues (WF2Q+), each with CoDel"
		}
		x.Rate, _ = unit.ParseRate(strings.Join(w[3:len(w)-2], " "))
		feeds := map[string]bool{"pipe " + w[1]: true}
		for _, l := range s.Live {
			f := strings.Fields(l)
			switch {
			case f[0] == "sched" && f[1] == w[1]:
				_, params, _ := strings.Cut(l, " active ")
				x.Queue = strings.ToLower(params)
			case f[0] == "queue" && f[3] == w[1]:
				feeds["queue "+f[1]] = true
				number, _ := strconv.Atoi(f[1])
				if c, ok := counts[number]; ok {
					x.Counters = append(x.Counters, tc.Counters{Device: x.Device, Kind: "queue", Handle: f[1] + className(w[1], number, x.Ours), Bytes: c.Bytes, Packets: c.Packets,
						Drops: c.Drops, BacklogBytes: c.BacklogSize, BacklogPkts: c.BacklogPkts})
				}
			}
		}
		rules := []string{}
		for _, l := range s.Live {
			if f := strings.Fields(l); len(f) > 3 && feeds[f[1]+" "+f[2]] {
				rules = append(rules, strings.Join(f[3:], " ")+" (rule "+f[0]+")")
			}
		}
		whose := "not unbloat's"
		if x.Ours {
			whose = "unbloat's"
		}
		what := "nothing, since no rule sends packets there"
		if len(rules) > 0 {
			what = strings.Join(rules, "; ")
		}
		x.Says = fmt.Sprintf("it holds to %s, by %s (%s): %s", x.Rate.Short(), x.Queue, whose, what)
		if x.Ours && w[1] == strconv.Itoa(dummynet.ControlPipe) {
			x = bsd.Control(x, what)
		}
		if x.Rate > 0 && x.Rate < unit.KbitPerSecond {
			x.Says += "; beware: dnctl(8) reads a fraction such as 9.5Mbit/s as 9 bit/s; give it a whole number of Kbit/s"
		}
		out = append(out, x)
	}
	return out, nil
}

// className returns the class of one of our queues; "" if it has none.
func className(pipe string, queue int, ours bool) string {
	n, _ := strconv.Atoi(pipe)
	if c := dummynet.ClassOf(n, queue); ours && c != "" {
		return " (" + string(c) + ")"
	}
	return ""
}
