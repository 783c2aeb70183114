package metrics

import (
	"io"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/supervise"
	"unbloat/unit"
)

// A Snapshot is what the daemon's metrics say at one moment.
type Snapshot struct {
	Version string // of the program
	Go      string // version of the compiler
	Panics  uint64 // errors of the program that ended a request or a run
	Stale   bool   // the configuration could not be read again
	WANs    []WAN
}

// A WAN is what they say of one WAN.
type WAN struct {
	Name       string // of its interface, with the router's address if it is elsewhere
	State      supervise.State
	Way        [2]Way // by follow.Direction
	Reconciles []Count
	ProbeBytes uint64 // of Ethernet frames, both ways together
	Reflectors []Reflector
}

// A Way is one direction of a WAN.
type Way struct {
	follow.Belief            // the shaper's rate alone, where the line is not followed; 0: there is no shaper
	Delays        *Histogram // of Delay; nil: it is not followed
	Changes       []Count    // of the rate, by reason
}

// A Count is how often something happened, by cause.
type Count struct {
	Cause string
	N     uint64
}

// A Reflector is one, and whether it answers.
type Reflector struct {
	Address string
	Up      bool
}

// Write writes a snapshot's metrics. The names are a contract.
func Write(w io.Writer, s *Snapshot) {
	t := NewText(w)
	directions := [2]string{"down", "up"}
	each := func(f func(wan, direction string, w *Way)) {
		for i := range s.WANs {
			for d := range directions {
				way := s.WANs[i].Way[d]
				if s.WANs[i].State != supervise.InPlace {
					way.Rate = 0
				}
				f(s.WANs[i].Name, directions[d], &way)
			}
		}
	}
	t.Head("unbloat_build_info", Gauge, "The program that runs; always 1.")
	t.Value("unbloat_build_info", 1, "version", s.Version, "goversion", s.Go)
	t.Head("unbloat_panics_total", Counter, "Errors of the program that ended a request or a run, and not the daemon.")
	t.Value("unbloat_panics_total", float64(s.Panics))
	t.Head("unbloat_config_reload_success", Gauge, "Whether the configuration file is in force; 0: it has a mistake, and the previous one stays in force.")
	t.Value("unbloat_config_reload_success", flag(!s.Stale))
	t.Head("unbloat_in_place", Gauge, "Whether what is wanted on the WAN is there.")
	for _, w := range s.WANs {
		t.Value("unbloat_in_place", flag(w.State == supervise.InPlace), "wan", w.Name)
	}
	t.Head("unbloat_state", Gauge, "How the WAN is kept: 1 for the state that it is in, 0 for the others.")
	for _, w := range s.WANs {
		for _, is := range supervise.States() {
			t.Value("unbloat_state", flag(is == w.State), "wan", w.Name, "state", strings.ReplaceAll(string(is), " ", "_"))
		}
	}
	rate := func(name, help string, of func(*Way) unit.Rate) {
		t.Head(name, Gauge, help)
		each(func(wan, direction string, w *Way) {
			if r := of(w); r > 0 {
				const bits = 8
				t.Value(name, float64(r)/bits, "wan", wan, "direction", direction)
			}
		})
	}
	rate("unbloat_shaper_rate_bytes_per_second", "Rate of the shaper; missing where none is in place.", func(w *Way) unit.Rate { return w.Rate })
	rate("unbloat_capacity_estimate_bytes_per_second", "What the line is believed to carry.", func(w *Way) unit.Rate { return w.Capacity })
	const delay = "unbloat_line_delay_seconds"
	t.Head(delay, Hist, "Delay that queues on the line add, beyond the shaper.")
	each(func(wan, direction string, w *Way) {
		if w.Delays != nil {
			w.Delays.write(t, delay, "wan", wan, "direction", direction)
		}
	})
	t.Head("unbloat_rate_changes_total", Counter, "Changes of the shaper's rate, by reason.")
	each(func(wan, direction string, w *Way) {
		for _, c := range w.Changes {
			t.Value("unbloat_rate_changes_total", float64(c.N), "wan", wan, "direction", direction, "reason", c.Cause)
		}
	})
	t.Head("unbloat_reconciles_total", Counter, "How often the shaping was put in place again, by cause.")
	for _, w := range s.WANs {
		for _, c := range w.Reconciles {
			t.Value("unbloat_reconciles_total", float64(c.N), "wan", w.Name, "cause", c.Cause)
		}
	}
	t.Head("unbloat_probe_bytes_total", Counter, "What probes and their answers occupied on Ethernet, both ways together.")
	for _, w := range s.WANs {
		t.Value("unbloat_probe_bytes_total", float64(w.ProbeBytes), "wan", w.Name)
	}
	t.Head("unbloat_reflector_up", Gauge, "Whether a reflector answers.")
	for _, w := range s.WANs {
		for _, r := range w.Reflectors {
			t.Value("unbloat_reflector_up", flag(r.Up), "wan", w.Name, "reflector", r.Address)
		}
	}
}

// flag is the value of what is so or not.
func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// A Histogram counts delays by their size. The zero Histogram is empty. It is for
// one goroutine; a Snapshot takes a copy.
type Histogram struct {
	counts [buckets + 1]uint64 // the last: above all bounds
	sum    float64             // seconds
}

// bounds are the upper ends of the buckets, in milliseconds: close around the
// thresholds at which people and controllers mind.
func bounds() [buckets]float64 {
	return [buckets]float64{1, 2.5, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000, 2000, 5000}
}

const buckets = 17

// Add counts a delay; one below zero counts as none.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.sum += d.Seconds()
	ms := unit.Ms(d)
	i := 0
	for bounds := bounds(); i < buckets && ms > bounds[i]; {
		i++
	}
	h.counts[i]++
}

// Count returns how many delays were counted.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.counts {
		n += c
	}
	return n
}

func (h *Histogram) write(t *Text, name string, labels ...string) {
	var n uint64
	for i, c := range h.counts {
		n += c
		le := "+Inf"
		if i < buckets {
			le = strconv.FormatFloat(bounds()[i]/1000, 'g', -1, 64)
		}
		t.Value(name+"_bucket", float64(n), append(labels[:len(labels):len(labels)], "le", le)...)
	}
	t.Value(name+"_sum", h.sum, labels...)
	t.Value(name+"_count", float64(n), labels...)
}
