package lab_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// How the cost of the classes is measured: costFlows flows of one machine
// behind NAT, half of them uploads and half downloads. In a slice one router
// forwards costRounds packets of each flow, and an answer to every second one.
// A turn is a slice of each router.
const (
	costFlows  = 1000
	costRounds = 4
	costFull   = 1448 // bytes that a full packet carries
	costInside = "UNBLOAT_COST_TURNS"
	costOf     = "UNBLOAT_COST_OF"   // the kind of traffic
	costTins   = "UNBLOAT_COST_FLAT" // not empty: CAKE has one tin, although the rules run
)

// Kinds of traffic.
const (
	costTCP   = "tcp"   // full packets of connections, and their acknowledgements
	costCalls = "calls" // 200 bytes of UDP in both directions, calm
	costQUIC  = "quic"  // full packets of UDP and short answers, busy
	costMix   = "mix"   // of ten flows six are TCP, three QUIC, and one a call
)

// costMost is by how much the rules may increase the cost of forwarding, in
// percent.
const costMost = 15

// Kinds of routers.
const (
	costWith    = "with"    // forwards and shapes, with the rules
	costWithout = "without" // the same without the rules
	costNone    = "none"    // no router: what is sent is dropped at once
)

// costRouters are the routers in one guest. There are two with and two without
// the rules, since one that was created earlier has other places in memory, and
// is a little slower.
var costRouters = [...]string{costWith, costWithout, costNone, costWithout, costWith}

// BenchmarkClasses measures what the classes cost: by how much they increase
// the processor time of a router that forwards 1000 flows through CAKE in both
// directions, behind NAT. The flows are TCP; a usual mix; only QUIC; or only
// calls. With one tin for all, the cost is that of the rules alone. The routers
// take turns of a few milliseconds, so other load on the machine affects all
// alike. It fails if the whole confidence interval is above the limit.
func BenchmarkClasses(b *testing.B) {
	for _, x := range []struct {
		name, of, flat string
		most           float64 // %
	}{
		{"tcp", costTCP, "", costMost},
		{"mix-rules-alone", costMix, "1", costMost},
		{"mix", costMix, "", 40},
		{"quic", costQUIC, "", 20},
		{"calls", costCalls, "", 20},
	} {
		b.Run(x.name, func(b *testing.B) { reportCost(b, x.most, costOf+"="+x.of, costTins+"="+x.flat) })
	}
}

func reportCost(b *testing.B, most float64, env ...string) {
	var c cost
	for b.Loop() {
		c = measureCost(b, 80, env...)
	}
	if c.lo > most {
		b.Errorf("the rules take %.1f %% (%.1f to %.1f), more than %.0f", c.more, c.lo, c.hi, most)
	}
	b.ReportMetric(c.without, "µs/packet-without")
	b.ReportMetric(c.without*(1+c.more/100), "µs/packet-with")
	b.ReportMetric(c.more, "%-more")
	b.ReportMetric(c.lo, "%-more-from")
	b.ReportMetric(c.hi, "%-more-to")
}

// A cost is the processor time that the rules take.
type cost struct {
	without      float64 // µs per forwarded packet without the rules
	more, lo, hi float64 // % more with the rules, and the 95 % interval
}

// measureCost boots a guest that forwards for this number of turns.
func measureCost(t testing.TB, turns int, env ...string) cost {
	kernel := labtest.NeedKernel(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := labtest.Home()
	g := lab.Guest{Engine: kernel.Engine, Scenario: s, Case: s.Cases[0].Name, Node: lab.NodeRouter, Programs: labtest.Programs(t),
		Command: []string{self, "-test.run", "^TestForwardInGuest$", "-test.v"},
		Env:     append(env, fmt.Sprintf("%s=%d", costInside, turns))}
	ctx, stop := context.WithCancel(t.Context())
	spent := map[string][]float64{}
	watched := make(chan error, 1)
	go func() { watched <- watchSlices(ctx, spent) }()
	r, wall, err := lab.Boot(t.Context(), kernel, g, nil)
	stop()
	if err := <-watched; err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Commands[0]; c.ExitCode != 0 {
		t.Fatalf("exit code %d:\n%s", c.ExitCode, c.Output)
	}
	for _, name := range costRouters {
		if n, want := len(spent[name]), turns*strings.Count(strings.Join(costRouters[:], ","), name); name == costNone && n != turns {
			t.Fatalf("%d slices %s, not %d", n, name, want)
		}
	}
	c := compareSlices(turns, spent)
	t.Logf("the rules take %.1f %% (%.1f to %.1f) of %.2f µs a packet; %d turns in %.0f s", c.more, c.lo, c.hi, c.without, turns, wall.Seconds())
	return c
}

// compareSlices compares the slices of each turn, and returns the median. The
// interval is by bootstrap over the turns.
func compareSlices(turns int, spent map[string][]float64) cost {
	var more, without []float64
	for i := range turns {
		with := (spent[costWith][2*i] + spent[costWith][2*i+1]) / 2
		base := (spent[costWithout][2*i]+spent[costWithout][2*i+1])/2 - spent[costNone][i]
		more = append(more, 100*((with-spent[costNone][i])/base-1))
		without = append(without, base)
	}
	of := func(pick func(i int) int) cost {
		var m, w []float64
		for i := range turns {
			k := pick(i)
			m, w = append(m, more[k]), append(w, without[k])
		}
		return cost{without: median(w), more: median(m)}
	}
	c := of(func(i int) int { return i })
	lot := rand.New(rand.NewPCG(1, 1))
	var seen []float64
	for range 1000 {
		seen = append(seen, of(func(int) int { return lot.IntN(turns) }).more)
	}
	slices.Sort(seen)
	c.lo, c.hi = seen[len(seen)/40], seen[len(seen)-1-len(seen)/40]
	return c
}

// watchSlices follows the slices of the guest, which marks their ends in the
// shared directory. It adds to spent the kernel's processor time of each slice,
// in µs per packet.
func watchSlices(ctx context.Context, spent map[string][]float64) error {
	var began time.Duration
	pid, dir := 0, ""
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Microsecond):
		}
		if dir == "" {
			pid, dir = guestProcess()
			continue
		}
		name, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("mark-%d", n)))
		if err != nil {
			continue
		}
		at, err := kernelTime(pid)
		if err != nil {
			return err
		}
		if n%2 == 1 {
			spent[string(name)] = append(spent[string(name)], float64((at-began).Nanoseconds())/1e3/(costFlows*costRounds*1.5))
		}
		began = at
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("seen-%d", n)), nil, 0o644); err != nil {
			return err
		}
		n++
	}
}

// guestProcess returns the guest among this process's children, and the
// directory that it shares.
func guestProcess() (pid int, dir string) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, t := range tasks {
		text, _ := os.ReadFile(t)
		for w := range strings.FieldsSeq(string(text)) {
			line, _ := os.ReadFile("/proc/" + w + "/cmdline")
			at, err := os.Readlink("/proc/" + w + "/cwd")
			if err == nil && strings.Contains(string(line), "\x00uml_dir=") {
				pid, _ = strconv.Atoi(w)
				return pid, at
			}
		}
	}
	return 0, ""
}

// kernelTime returns the processor time of the guest's kernel. Its programs are
// separate processes.
func kernelTime(pid int) (sum time.Duration, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if len(tasks) == 0 {
		return 0, fmt.Errorf("the processor time of process %d cannot be read: %v", pid, err)
	}
	for _, t := range tasks {
		text, _ := os.ReadFile(t)
		var ns int64
		fmt.Sscan(string(text), &ns)
		sum += time.Duration(ns)
	}
	return sum, nil
}
