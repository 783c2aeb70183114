package linux

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/unit"
)

// How headroom is measured. The kernel accounts a core's time in ticks of 10 ms.
const (
	headroomLook   = time.Second     // whether there is anything to measure
	headroomWindow = 4 * time.Second // after that
	leastLoad      = unit.MbitPerSecond
	leastWork      = 30 // ticks: an interval of about ± 40 %
	coreFull       = 0.9
)

// cpuWork is what a core did since it started, in ticks.
type cpuWork struct {
	all     uint64
	packets uint64 // interrupts and softirqs
	system  uint64
	idle    uint64
}

// A workSample is what a router did since it started.
type workSample struct {
	at                time.Duration // since it started, by its own clock
	cores             map[string]cpuWork
	rx, tx            uint64 // bytes of the WAN
	dropped, squeezed uint64
}

// workFiles are what a workSample is made of: with one command, so that all of it is of
// one moment. None has a name in it that somebody gave, which could look like a figure
// of another.
func workFiles(wan string) []string {
	of := "/sys/class/net/" + wan + "/statistics/"
	return []string{"/proc/uptime", of + "rx_bytes", of + "tx_bytes", "/proc/stat", "/proc/net/softnet_stat"}
}

// takeWork reads what a router did since it started.
func takeWork(ctx context.Context, r platform.Runner, wan string) (workSample, error) {
	out, err := platform.Output(ctx, r, append([]string{"cat"}, workFiles(wan)...)...)
	if err != nil {
		return workSample{}, err
	}
	return parseWork(string(out))
}

// parseWork reads workFiles, printed one after the other.
func parseWork(text string) (workSample, error) {
	s := workSample{cores: map[string]cpuWork{}}
	lines := strings.Split(text, "\n")
	if len(lines) < 3 {
		return s, fmt.Errorf("/proc/uptime and the WAN's counters have %d lines", len(lines))
	}
	uptime, _, _ := strings.Cut(lines[0], " ")
	up, err := strconv.ParseFloat(uptime, 64)
	if err != nil {
		return s, fmt.Errorf("%q is not /proc/uptime", lines[0])
	}
	s.at = time.Duration(up * float64(time.Second))
	moved, err := numbers(lines[1:3], 10)
	if err != nil {
		return s, fmt.Errorf("the WAN's counters: %w", err)
	}
	s.rx, s.tx = moved[0], moved[1]
	for _, line := range lines[3:] {
		f := strings.Fields(line)
		switch {
		case len(f) > 7 && strings.HasPrefix(f[0], "cpu") && f[0] != "cpu":
			v, err := numbers(f[1:min(len(f), 9)], 10)
			if err != nil {
				return s, fmt.Errorf("/proc/stat: %w", err)
			}
			c := cpuWork{system: v[2], idle: v[3] + v[4], packets: v[5] + v[6]}
			for _, n := range v {
				c.all += n
			}
			s.cores[f[0]] = c
		case len(f) >= 9 && len(f[0]) == 8 && len(f[8]) == 8:
			v, err := numbers(f[:3], 16)
			if err != nil {
				return s, fmt.Errorf("/proc/net/softnet_stat: %w", err)
			}
			s.dropped, s.squeezed = s.dropped+v[1], s.squeezed+v[2]
		}
	}
	if len(s.cores) == 0 {
		return s, fmt.Errorf("/proc/stat names no core")
	}
	return s, nil
}

func numbers(words []string, base int) ([]uint64, error) {
	out := make([]uint64, len(words))
	for i, w := range words {
		var err error
		if out[i], err = strconv.ParseUint(w, base, 64); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// headroom says which rate a router can carry, from what it did between two samples.
// threaded says that packets are the work of threads (threaded NAPI), whose time is
// system time; shaped, that something shaped meanwhile.
func headroom(before, after workSample, threaded, shaped bool) platform.Headroom {
	h := platform.Headroom{Shaped: shaped, Dropped: after.dropped - before.dropped, Squeezed: after.squeezed - before.squeezed}
	window := after.at - before.at
	invalid := func(format string, v ...any) platform.Headroom {
		h.Why = fmt.Sprintf(format, v...)
		return h
	}
	if window <= 0 || after.rx < before.rx || after.tx < before.tx || after.dropped < before.dropped || after.squeezed < before.squeezed {
		h.Dropped, h.Squeezed = 0, 0
		return invalid("its counters went backwards: it restarted, or an interface was made anew")
	}
	h.WindowS = window.Seconds()
	h.Down, h.Up = unit.Rate(float64(after.rx-before.rx)*8/h.WindowS), unit.Rate(float64(after.tx-before.tx)*8/h.WindowS)
	rate := float64(h.Down + h.Up)
	var ticks, busyTicks uint64
	var busyOther float64 // share of the busiest core's time on other things
	for name, b := range after.cores {
		a, ok := before.cores[name]
		if !ok || b.all <= a.all || b.packets < a.packets || b.idle < a.idle || b.system < a.system {
			continue // it was switched on or off meanwhile
		}
		all, work, idle := b.all-a.all, b.packets-a.packets, b.idle-a.idle
		if threaded {
			work += b.system - a.system
		}
		h.Cores++
		ticks += work
		share := float64(work) / float64(all)
		h.Work += share
		if share > h.Busiest {
			h.Busiest, busyTicks = share, work
			busyOther = max(0, 1-share-float64(idle)/float64(all))
		}
	}
	switch {
	case h.Cores == 0:
		return invalid("no core could be watched for the whole time")
	case rate < float64(leastLoad):
		return invalid("only %s crossed the WAN, which costs too little to tell; do it again during a download", unit.Rate(rate).Short())
	case ticks < leastWork:
		return invalid("%s took %d ms of the cores' time in %.0f s, too little to tell; do it again during a larger download", unit.Rate(rate).Short(), ticks*10, h.WindowS)
	}
	h.Valid = true
	spread := func(full float64, n uint64) (mean, from, to unit.Rate) {
		doubt := 2 / math.Sqrt(float64(n))
		return unit.Rate(full), unit.Rate(full / (1 + doubt)), unit.Rate(full / max(1-doubt, 0.1))
	}
	h.PerCore, h.PerCoreFrom, h.PerCoreTo = spread(coreFull*rate/h.Work, ticks)
	h.Most, h.MostFrom, h.MostTo = spread(max(coreFull-busyOther, h.Busiest)*rate/h.Busiest, busyTicks) // at least what it carries now
	return h
}

// MeasureHeadroom returns a check that measures the router's headroom; wait lets time
// pass. It takes a second, and four more if there is enough to measure.
func MeasureHeadroom(wait func(context.Context, time.Duration) error) func(*platform.Examination) {
	return func(e *platform.Examination) {
		const name = "headroom"
		if e.WAN == "" {
			e.Skip(name, "the WAN is not known")
			return
		}
		threaded := strings.TrimSpace(e.Read("cat", "/sys/class/net/"+e.WAN+"/threaded")) == "1"
		shaped := false
		for _, s := range e.Shapers {
			shaped = shaped || s.Rate > 0
		}
		first, err := takeWork(e.Ctx, e.Runner, e.WAN)
		if err != nil {
			e.Skip(name, err.Error())
			return
		}
		var h platform.Headroom
		for _, d := range []time.Duration{headroomLook, headroomWindow} {
			if err := wait(e.Ctx, d); err != nil {
				e.Skip(name, err.Error())
				return
			}
			last, err := takeWork(e.Ctx, e.Runner, e.WAN)
			if err != nil {
				e.Skip(name, err.Error())
				return
			}
			h = headroom(first, last, threaded, shaped)
			if d == headroomLook && (float64(h.Down+h.Up) < float64(leastLoad) || h.Work == 0) {
				break
			}
		}
		e.Headroom = &h
		if !h.Valid {
			e.Skip(name, h.Why)
			return
		}
		judgeHeadroom(e)
	}
}

// HeadroomSentence says what was measured, in English.
func HeadroomSentence(h platform.Headroom) string {
	if !h.Valid {
		return h.Why
	}
	text := fmt.Sprintf("at %s (%s down, %s up) packets take %.0f %% of the busiest of %d cores: a core carries %s to %s, and this router about %s, both directions together, as its work is spread now",
		(h.Down + h.Up).Short(), h.Down.Short(), h.Up.Short(), 100*h.Busiest, h.Cores, h.PerCoreFrom.Short(), h.PerCoreTo.Short(), h.Most.Short())
	if !h.Shaped {
		text += "; nothing shapes here yet, and with a shaper it is less"
	}
	return text
}

// fastLine is from where on several queues do a line no harm (docs/evidence/notes.md).
const fastLine = 500 * unit.MbitPerSecond

// Engine says what should shape a router of which the headroom was measured, at a rate of
// both directions together, and why.
func Engine(h platform.Headroom, asked unit.Rate) string {
	const others = "; unbloat tune finds a rate that it can carry"
	w := h.Carries()
	switch w.Way(asked) {
	case plan.WaySpread:
		text := fmt.Sprintf("CAKE with classes, once the work is spread: one of %d cores does most of it, and all could carry %s. Switch on packet steering (RPS; on OpenWrt: uci set network.globals.packet_steering=1; uci commit network; service network restart)", h.Cores, w.Spread.Short())
		if asked >= fastLine {
			text += "; CAKE itself stays on one core, as no plan sets cake_mq, which Linux 7.0 has"
		}
		return text + others
	case plan.WayLight:
		return "HTB with fq_codel, without classes (--aqm fq_codel), which saves a seventh of a packet's instructions" + others
	case plan.WayShort:
		return "the LAN's side without classes, which takes less than half of a shaper's work: with a flow table in software (--flow-table --lan IF), or without (--side lan --classes off)" + others
	}
	return "CAKE with classes, which is the default, since the router carries that"
}

// judgeHeadroom makes findings of the headroom that was measured.
func judgeHeadroom(e *platform.Examination) {
	h, asked := e.Headroom, e.Down+e.Up
	if h.Dropped > 0 {
		e.Find(platform.Finding{ID: "softnet", What: fmt.Sprintf("the kernel dropped %d packets before any queue in %.0f s", h.Dropped, h.WindowS),
			Why: "its cores did not take them in time, so the shaper's queue is not where this line's packets are lost", Remedy: "a lower rate; unbloat plan --flow-table, or --classes off; packet steering (RPS) if a core is idle"})
	}
	if asked > 0 && h.MostTo < asked {
		e.Find(platform.Finding{ID: "headroom", What: fmt.Sprintf("%s are asked for, and %s", asked.Short(), HeadroomSentence(*h)),
			Why: "when a core is busy, packets wait outside the queues that are kept short", Remedy: Engine(*h, asked)})
	}
}
