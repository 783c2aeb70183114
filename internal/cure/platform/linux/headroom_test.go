package linux

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/platform"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// A busyRouter prints the kernel's counters of a router that has carried packets.
type busyRouter struct {
	seconds  float64
	cores    []float64 // seconds of each on packets
	user     float64   // seconds of the first core on programs
	rx, tx   uint64    // bytes of the WAN
	dropped  uint64
	squeezed uint64
}

// show puts the counters where the kernel has them.
func (r busyRouter) show(m *fake.OpenWrt, wan string) {
	var stat, softnet strings.Builder
	stat.WriteString("cpu  1 2 3 4 5 6 7 8 9 10\n")
	for i, work := range r.cores {
		user := 0.0
		if i == 0 {
			user = r.user
		}
		ticks := func(s float64) int { return int(math.Round(s * 100)) }
		fmt.Fprintf(&stat, "cpu%d %d 0 0 %d 0 0 %d 0 0 0\n", i, ticks(user), ticks(r.seconds-work-user), ticks(work))
	}
	stat.WriteString("intr 1 2 3\nctxt 5\n")
	for i := range r.cores {
		d, s := r.dropped, r.squeezed
		if i > 0 {
			d, s = 0, 0
		}
		fmt.Fprintf(&softnet, "%08x %08x %08x 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 %08x\n", 77, d, s, i)
	}
	m.Files["/proc/uptime"] = fmt.Sprintf("%.2f %.2f\n", r.seconds, r.seconds)
	m.Files["/proc/stat"], m.Files["/proc/net/softnet_stat"] = stat.String(), softnet.String()
	m.Files["/proc/net/dev"] = fmt.Sprintf("Inter-|   Receive  |  Transmit\n face |bytes    packets errs drop\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n  %s:%d 7 0 0 0 0 0 0 %d 5 0 0 0 0 0 0\n", wan, r.rx, r.tx)
	m.Files["/sys/class/net/"+wan+"/statistics/rx_bytes"] = fmt.Sprintf("%d\n", r.rx)
	m.Files["/sys/class/net/"+wan+"/statistics/tx_bytes"] = fmt.Sprintf("%d\n", r.tx)
}

func mustWork(t *testing.T, r busyRouter) workSample {
	t.Helper()
	m := fake.NewOpenWrt()
	r.show(m, "eth0")
	s, err := takeWork(t.Context(), m, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What the cores did between two looks says what a core carries; too little says that it
// says nothing.
func TestHeadroomOf(t *testing.T) {
	before := busyRouter{seconds: 1000, cores: []float64{10, 20}, rx: 5e9, tx: 1e9}
	after := func(change func(r *busyRouter)) busyRouter {
		r := busyRouter{seconds: 1005, cores: []float64{12, 20.5}, rx: 5e9 + 56_250_000, tx: 1e9 + 6_250_000} // 90 and 10 Mbit/s
		if change != nil {
			change(&r)
		}
		return r
	}
	h := headroom(mustWork(t, before), mustWork(t, after(nil)), false, true)
	// 2 s of 5 on the busiest core, 2.5 in all: 100 Mbit/s × 0.9/0.5 a core, × 0.9/0.4 in all.
	if !h.Valid || h.Cores != 2 || math.Abs(h.Busiest-0.4) > 1e-3 || math.Abs(h.Work-0.5) > 1e-3 || h.Down != 90e6 || h.Up != 10e6 ||
		math.Abs(float64(h.PerCore)/180e6-1) > 0.01 || math.Abs(float64(h.Most)/225e6-1) > 0.01 || h.PerCoreFrom >= h.PerCore || h.PerCoreTo <= h.PerCore {
		t.Errorf("%+v", h)
	}
	// The other programs of that core have their time.
	busy := headroom(mustWork(t, before), mustWork(t, after(func(r *busyRouter) { r.user = 1 })), false, true)
	if math.Abs(float64(busy.Most)/175e6-1) > 0.01 || busy.PerCore != h.PerCore {
		t.Errorf("with other programs: %+v", busy)
	}
	for name, c := range map[string]struct {
		after busyRouter
		why   string
	}{
		"idle":       {after(func(r *busyRouter) { r.rx, r.tx = before.rx+1000, before.tx }), "during a download"},
		"fast":       {after(func(r *busyRouter) { r.cores = []float64{10.1, 20.05} }), "150 ms of the cores' time"},
		"restarted":  {busyRouter{seconds: 20, cores: []float64{1, 1}, rx: 10, tx: 10}, "went backwards"},
		"new device": {after(func(r *busyRouter) { r.rx = 0 }), "went backwards"},
		"other core": {after(func(r *busyRouter) { r.cores = []float64{1, 1} }), "no core"},
	} {
		if h := headroom(mustWork(t, before), mustWork(t, c.after), false, true); h.Valid || !strings.Contains(h.Why, c.why) || h.Most != 0 {
			t.Errorf("%s: %+v, not because of %q", name, h, c.why)
		}
	}
	for name, text := range map[string]string{
		"empty": "", "no uptime": "cpu0 1 2 3 4 5 6 7 8\n1\n2\n", "no core": "5.0 5.0\n1\n2\ncpu  1 2 3 4 5 6 7 8\n",
		"no counters": "5.0 5.0\ncpu0 1 2 3 4 5 6 7 8\ncpu1 1 2 3 4 5 6 7 8\n", "short": "5.0 5.0\n1\n2",
		"words": "5.0 5.0\n1\n2\ncpu0 a b c d e f g h\n",
	} {
		if s, err := parseWork(text); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s, err := takeWork(t.Context(), fake.NewOpenWrt(), "eth1"); err == nil {
		t.Errorf("no WAN: %+v", s)
	}
}

// What an interface is called is not taken for something else: neither a name and a
// counter of eight characters for a line of the kernel's packet statistics, nor a name
// like a core's for that core.
func TestHeadroomBesideOddNames(t *testing.T) {
	m := fake.NewOpenWrt()
	r := busyRouter{seconds: 1000, cores: []float64{10, 20}, rx: 5e9, tx: 1e9}
	r.show(m, "eth0")
	for _, name := range []string{"eth0.10", "c0ffee0", "cpu0", "cpu7", "1000.00"} {
		m.Files["/proc/net/dev"] += "  " + name + ": 1 7 0 0 0 0 0 12345678 2 5 0 0 0 0 0 0\n"
	}
	s, err := takeWork(t.Context(), m, "eth0")
	if err != nil || len(s.cores) != 2 || s.rx != 5e9 || s.tx != 1e9 || s.dropped != 0 || s.at != 1000*time.Second {
		t.Errorf("%+v, %v", s, err)
	}
}

// Where threads do the work, it is system time.
func TestHeadroomOfThreads(t *testing.T) {
	text := func(seconds, system, bytes int) string {
		return fmt.Sprintf("%d.00 1.00\n%d\n0\ncpu0 0 0 %d %d 0 0 0 0\n", seconds, bytes, system, seconds*100-system)
	}
	parse := func(s string) workSample {
		w, err := parseWork(s)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	a, b := parse(text(10, 0, 0)), parse(text(15, 250, 62_500_000))
	if h := headroom(a, b, true, true); !h.Valid || math.Abs(h.Busiest-0.5) > 1e-9 {
		t.Errorf("threads: %+v", h)
	}
	if h := headroom(a, b, false, true); h.Valid {
		t.Errorf("no threads: %+v", h)
	}
}

// Engine names CAKE where the router carries the rate, spreads work that one of several cores
// does, and otherwise takes work away.
func TestEngine(t *testing.T) {
	const mbit = unit.MbitPerSecond
	one := platform.Headroom{Valid: true, Cores: 1, Busiest: 0.5, Work: 0.5, PerCore: 180 * mbit, Most: 180 * mbit, MostTo: 220 * mbit}
	four := one
	four.Cores = 4
	for name, x := range map[string]struct {
		h        platform.Headroom
		asked    unit.Rate
		has, not string
	}{
		"enough":              {one, 100 * mbit, "default", "--side"},
		"no rate":             {one, 0, "default", "--side"},
		"nearly":              {one, 240 * mbit, "--aqm fq_codel", "--side"},
		"a weak core":         {one, 400 * mbit, "--side lan --classes off", "packet steering"},
		"one of four cores":   {four, 400 * mbit, "packet_steering=1", "cake_mq"},
		"and a fast line":     {four, 600 * mbit, "cake_mq", "--side"},
		"more than all cores": {four, 900 * mbit, "--flow-table", "packet steering"},
	} {
		if got := Engine(x.h, x.asked); !strings.Contains(got, x.has) || strings.Contains(got, x.not) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The check watches a router, and says which rate is too much for it. A router on which
// nothing happens costs one second.
func TestMeasureHeadroom(t *testing.T) {
	for _, c := range []struct {
		name     string
		mbit     int
		asked    unit.Rate
		dropped  uint64
		waited   time.Duration
		findings string
		skipped  bool
	}{
		{"enough", 100, 110e6, 0, 5 * time.Second, "", false},
		{"not enough", 100, 900e6, 0, 5 * time.Second, "headroom", false},
		{"no rate asked for", 100, 0, 0, 5 * time.Second, "", false},
		{"drops", 100, 0, 3, 5 * time.Second, "softnet", false},
		{"idle", 0, 900e6, 0, time.Second, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := fake.NewOpenWrt()
			now := busyRouter{seconds: 50, cores: []float64{5}, rx: 1e6, tx: 1e6}
			now.show(m, "eth0")
			var waited time.Duration
			wait := func(_ context.Context, d time.Duration) error {
				waited += d
				s := d.Seconds()
				now.seconds += s
				now.cores[0] += 0.4 * s * float64(c.mbit) / 100
				now.rx += uint64(s * float64(c.mbit) * 1e6 / 8)
				now.dropped += c.dropped
				now.show(m, "eth0")
				return nil
			}
			e := &platform.Examination{Ctx: t.Context(), Runner: m, WAN: "eth0", Down: c.asked}
			MeasureHeadroom(wait)(e)
			var ids []string
			for _, f := range e.Findings {
				ids = append(ids, f.ID)
				if f.What == "" || f.Why == "" || f.Remedy == "" || f.Blocking {
					t.Errorf("%+v", f)
				}
			}
			if waited != c.waited || strings.Join(ids, " ") != c.findings || (len(e.Skipped) > 0) != c.skipped || e.Headroom == nil {
				t.Errorf("waited %v, findings %q, skipped %q, %+v", waited, ids, e.Skipped, e.Headroom)
			}
			if !c.skipped && !strings.Contains(HeadroomSentence(*e.Headroom), "40 % of the busiest of 1 cores") {
				t.Error(e.Headroom)
			}
		})
	}
}
