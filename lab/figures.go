package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/lab/scenario"
)

// measured is what one case of a scenario gave with each seed.
type measured struct {
	seeds, invalid int
	loads          bool // the scenario brings its own loads
	phases         []measuredPhase
	mos            []float64 // of the worst call; empty if nobody calls
	got            []got
}

// measuredPhase has one figure for each seed.
type measuredPhase struct {
	name                          string
	addedMs, lost, downBps, upBps []float64
}

// got is what a load got through: words with a %s for each list of values.
type got struct {
	words  string
	values [][]float64 // one for each seed in which it went that way
	show   []func(float64) string
}

// measured collects what the case gave; ok is false if the scenario has no such
// case.
func (r Row) measured(name string) (m measured, ok bool) {
	for _, result := range r.Results {
		i := slices.IndexFunc(result.Cases, func(c CaseResult) bool { return c.Name == name })
		if i >= 0 {
			m.add(result.Cases[i])
		}
	}
	return m, m.seeds > 0
}

func (m *measured) add(c CaseResult) {
	m.seeds++
	if !c.Test.Valid {
		m.invalid++
	}
	m.loads = m.loads || len(c.Loads) > 0
	for _, p := range c.Test.Phases() {
		if p.Name == verdict.PhaseIdle {
			continue
		}
		i := slices.IndexFunc(m.phases, func(q measuredPhase) bool { return q.name == p.Name })
		if i < 0 {
			i = len(m.phases)
			m.phases = append(m.phases, measuredPhase{name: p.Name})
		}
		q := &m.phases[i]
		q.addedMs = append(q.addedMs, p.Latency.IncreaseMs.P95)
		q.lost = append(q.lost, p.Latency.Loss)
		q.downBps = append(q.downBps, p.GoodputDownBps)
		q.upBps = append(q.upBps, p.GoodputUpBps)
	}
	if mos, ok := WorstCall(c); ok {
		m.mos = append(m.mos, mos)
	}
	for i, l := range c.Loads {
		g, ok := gotOf(l)
		if !ok {
			continue
		}
		// A load of the same words further on in the list is another load.
		nth := 0
		for _, before := range c.Loads[:i] {
			if b, ok := gotOf(before); ok && b.words == g.words {
				nth++
			}
		}
		m.merge(g, nth)
	}
}

// merge adds the values to those of the nth load with the same words.
func (m *measured) merge(g got, nth int) {
	for i := range m.got {
		if m.got[i].words != g.words {
			continue
		}
		if nth == 0 {
			for k := range g.values {
				m.got[i].values[k] = append(m.got[i].values[k], g.values[k]...)
			}
			return
		}
		nth--
	}
	m.got = append(m.got, g)
}

func (p measuredPhase) added() string { return Spread(p.addedMs, showMs) }

func (p measuredPhase) anyLost() bool { return slices.Max(p.lost) > 0 }

func (p measuredPhase) lostPercent() string {
	return Spread(p.lost, func(share float64) string { return fmt.Sprintf("%.2g", 100*share) })
}

// goodput is "down/up" in Mbit/s.
func (p measuredPhase) goodput() string {
	return Spread(p.downBps, showMbit) + "/" + Spread(p.upBps, showMbit)
}

// loaded is the same for the directions that the phase loads alone.
func (p measuredPhase) loaded() string {
	down, up := verdict.Loads(p.name)
	parts := []string{"–", "–"}
	if down {
		parts[0] = Spread(p.downBps, showMbit)
	}
	if up {
		parts[1] = Spread(p.upBps, showMbit)
	}
	return strings.Join(parts, " / ")
}

// call is the MOS of the worst call; "" if nobody calls.
func (m measured) call() string {
	if len(m.mos) == 0 {
		return ""
	}
	return Spread(m.mos, showHundredths)
}

// others says what every load but the calls got through. What was so with some
// of the seeds alone says with how many.
func (m measured) others() []string {
	var out []string
	for _, g := range m.got {
		args := make([]any, len(g.values))
		for i, v := range g.values {
			args[i] = Spread(v, g.show[i])
		}
		text := fmt.Sprintf(g.words, args...)
		if n := len(g.values[0]); n < m.seeds {
			text += fmt.Sprintf(" (%d of %d)", n, m.seeds)
		}
		out = append(out, text)
	}
	return out
}

// Spread shows values as "median (min to max)", and as one figure if all look
// the same. Of an even number of values the median is the mean of the two in the
// middle.
func Spread(values []float64, show func(float64) string) string {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return "–"
	}
	n := len(sorted)
	lo, hi := show(sorted[0]), show(sorted[n-1])
	if lo == hi {
		return lo
	}
	return fmt.Sprintf("%s (%s to %s)", show((sorted[(n-1)/2]+sorted[n/2])/2), lo, hi)
}

// gotOf says what a load got through; ok is false for calls, which have their MOS.
func gotOf(l LoadResult) (g got, ok bool) {
	add := func(v float64, show func(float64) string) {
		g.values, g.show = append(g.values, []float64{v}), append(g.show, show)
	}
	switch {
	case l.Kind == scenario.VoIP:
		return got{}, false
	case l.Torrent != nil:
		g.words = "torrent %s/%s Mbit/s"
		add(l.GoodputDownBps, showMbit)
		add(l.GoodputUpBps, showMbit)
	case l.Mail != nil && l.Mail.Done:
		g.words = "mail in %s s"
		add(l.Mail.Seconds, showTenths)
	case l.Mail != nil:
		g.words = "%s of %s messages in %s s"
		add(float64(l.Mail.Messages), showWhole)
		add(float64(l.Mail.Of), showWhole)
		add(l.Mail.Seconds, showWhole)
	case l.Web != nil && l.Web.Pages == 0:
		g.words = "no page, %s failed"
		add(float64(l.Web.Failed), showWhole)
	case l.Web != nil:
		g.words = "pages in %s s"
		add(time.Duration(l.Web.LoadMs.P50*float64(time.Millisecond)).Seconds(), showHundredths)
	case l.DNS != nil:
		g.words = "dns: p50 %s ms, p95 %s ms, %s failed"
		add(l.DNS.AnswerMs.P50, showTenths)
		add(l.DNS.AnswerMs.P95, showTenths)
		add(float64(l.DNS.Failed), showWhole)
	case l.Shell != nil:
		g.words = "ssh: echo p50 %s ms, p95 %s ms, %s missing"
		add(l.Shell.EchoMs.P50, showTenths)
		add(l.Shell.EchoMs.P95, showTenths)
		add(float64(l.Shell.Missing), showWhole)
	case l.Video != nil && l.Video.StartupMs == 0:
		g.words = "video: no picture, %s segments"
		add(float64(l.Video.Segments), showWhole)
	case l.Video != nil:
		g.words = "video: %s Mbit/s, %s stalls of %s s together"
		add(l.Video.QualityBps, showMbit)
		add(float64(l.Video.Stalls), showWhole)
		add(l.Video.StalledS, showTenths)
	case l.Call != nil: // down/up, as everywhere; the picture is of the worse way
		g.words = "video call %s/%s Mbit/s, frozen %s s, %s %% of frames late or lost"
		add(l.Call.Down.VideoBps, showMbit)
		add(l.Call.Up.VideoBps, showMbit)
		add(max(l.Call.Down.FrozenS, l.Call.Up.FrozenS), showTenths)
		add(100*max(l.Call.Down.Missed(), l.Call.Up.Missed()), showPercent)
	case l.QUIC != nil:
		g.words = strings.ReplaceAll(l.Kind, "%", "%%") + " %s Mbit/s, a flow at most %s over 3 s"
		add(l.GoodputBps, showMbit)
		add(l.QUIC.PeakBps, showMbit)
	case l.Play != nil:
		g.words = "cloud-game: %s %% of frames late or lost, frozen %s s"
		add(100*l.Play.Missed(), showPercent)
		add(l.Play.FrozenS, showTenths)
	default:
		g.words = strings.ReplaceAll(l.Kind, "%", "%%") + " %s Mbit/s"
		add(l.GoodputBps, showMbit)
	}
	return g, true
}

func showMbit(bps float64) string     { return fmt.Sprintf("%.3g", bps/1e6) }
func showHundredths(v float64) string { return fmt.Sprintf("%.2f", v) }
func showTenths(v float64) string     { return fmt.Sprintf("%.1f", v) }
func showWhole(v float64) string      { return fmt.Sprintf("%.0f", v) }

// showPercent prints two digits, and all of them from 10 on.
func showPercent(v float64) string {
	if v >= 9.95 {
		return showWhole(v)
	}
	return fmt.Sprintf("%.2g", v)
}

// showMs prints milliseconds with as many digits as people compare.
func showMs(ms float64) string {
	if ms < 100 {
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}
