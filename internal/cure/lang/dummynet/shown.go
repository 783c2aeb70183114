package dummynet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// ShownRate prints a rate as dnctl(8) does.
func ShownRate(r unit.Rate) string {
	f := float64(r)
	switch {
	case r == 0:
		return "unlimited     "
	case f >= 1e9:
		return fmt.Sprintf("%7.3f Gbit/s", f/1e9)
	case f >= 1e6:
		return fmt.Sprintf("%7.3f Mbit/s", f/1e6)
	case f >= 1e3:
		return fmt.Sprintf("%7.3f Kbit/s", f/1e3)
	}
	return fmt.Sprintf("%7.3f bit/s ", f)
}

// Shown writes the scheduler's lines of `dnctl sched show`.
func (s Sched) Shown() string {
	name := strings.ToUpper(s.Type)
	out := fmt.Sprintf(" sched %d type %s flags 0x0 0 buckets 0 active\n", s.Number, name)
	if s.Type == "fq_codel" {
		ecn := "ECN"
		if s.NoECN {
			ecn = "NoECN"
		}
		out += fmt.Sprintf(" FQ_CODEL target %s interval %s quantum %d limit %d flows %d %s\n",
			shownSpan(cmp.Or(s.Target, 5*time.Millisecond)), shownSpan(cmp.Or(s.Interval, 100*time.Millisecond)),
			cmp.Or(s.Quantum, 1514), cmp.Or(s.Limit, 10240), cmp.Or(s.Flows, 1024), ecn)
	}
	return out
}

// codelShown writes CoDel's parameters as dnctl(8) shows them.
func (q Queue) codelShown() string {
	text := strings.TrimSuffix(strings.TrimSuffix(q.CoDel, " noecn"), " ecn")
	w := strings.Fields(text)
	for i, word := range w {
		if d, err := time.ParseDuration(word); err == nil {
			w[i] = shownSpan(d)
		}
	}
	text = strings.Join(w, " ")
	if strings.HasSuffix(q.CoDel, " noecn") {
		return text + " NoECN"
	}
	return text + " ECN"
}

// shownSpan formats a time as dnctl(8) shows it: six digits, and from one
// second on the unit "fs".
func shownSpan(d time.Duration) string {
	us := float32(d.Microseconds())
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "us"
	case d < time.Second:
		return fmt.Sprintf("%.6gms", us/1000)
	}
	return fmt.Sprintf("%.6gfs", us/1e6)
}

// Shown writes the rule's line of `ipfw list`.
func (r Rule) Shown() string {
	return fmt.Sprintf("%05d %s %s %s", r.Number, r.Action, r.target(), plainMatch(r.Match))
}

// plainMatch removes a word that only some versions of ipfw(8) print.
func plainMatch(s string) string { return strings.ReplaceAll(s, " dst-port ", " ") }

// ShownLines returns the configuration as it is read back: one line per pipe,
// scheduler, queue and rule, with the precision of the tools' output.
func (c Config) ShownLines() []string {
	var out []string
	for _, p := range c.Pipes {
		slots := cmp.Or(p.Slots, DefaultSlots)
		out = append(out, fmt.Sprintf("pipe %d bw %s queue %d", p.Number, strings.Join(strings.Fields(ShownRate(p.Bandwidth)), " "), slots))
	}
	for _, s := range c.Scheds {
		if s.Type == "fq_codel" {
			out = append(out, strings.Join(strings.Fields(s.Shown()), " "))
		}
	}
	for _, q := range c.Queues {
		line := fmt.Sprintf("queue %d sched %d weight %d", q.Number, q.Sched, q.Weight)
		if q.CoDel != "" {
			line += " codel " + q.codelShown()
		}
		out = append(out, line)
	}
	for _, t := range c.Tables {
		out = append(out, t.Shown())
	}
	for _, r := range c.Rules {
		out = append(out, r.Shown())
	}
	return out
}

// ParseShown converts the output of `dnctl pipe show`, `dnctl sched show`,
// `dnctl queue show`, `ipfw list` and `ipfw table all info` to the form of ShownLines. Rules without
// queue or pipe and the default schedulers of pipes are left out, and so are tables
// that are not of ours.
func ParseShown(pipes, scheds, queues, rules, tables string) []string {
	out := shownPipes(pipes)
	out = append(out, shownScheds(scheds)...)
	for line := range strings.Lines(queues) {
		w := strings.Fields(line)
		if len(w) < 10 || w[0][0] != 'q' {
			continue
		}
		number, err := strconv.Atoi(w[0][1:])
		if at := slices.Index(w, "sched"); err == nil && at > 0 && at+3 < len(w) {
			text := fmt.Sprintf("queue %d sched %s weight %s", number, w[at+1], w[at+3])
			if _, codel, ok := strings.Cut(strings.Join(w, " "), " AQM CoDel "); ok {
				text += " codel " + codel
			}
			out = append(out, text)
		}
	}
	out = append(out, shownTables(tables)...)
	for line := range strings.Lines(rules) {
		w := strings.Fields(line)
		if len(w) > 3 && (w[1] == "queue" || w[1] == "pipe") {
			out = append(out, plainMatch(strings.Join(w, " ")))
		}
	}
	return out
}

// shownPipes reads pipes; the length of a pipe's FIFO is on its second line.
func shownPipes(text string) (out []string) {
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		number, err := 0, error(nil)
		if len(w) > 1 {
			number, err = strconv.Atoi(strings.TrimSuffix(w[0], ":"))
		}
		switch {
		case len(w) > 2 && err == nil && strings.HasSuffix(w[0], ":"):
			rate := w[1]
			if rate != "unlimited" {
				rate += " " + w[2]
			}
			out = append(out, fmt.Sprintf("pipe %d bw %s queue %d", number, rate, DefaultSlots))
		case len(w) > 2 && w[0][0] == 'q' && w[2] == "sl." && len(out) > 0:
			last := out[len(out)-1]
			out[len(out)-1] = last[:strings.LastIndex(last, " ")+1] + w[1]
		}
	}
	return out
}

// shownScheds reads the schedulers of type fq_codel.
func shownScheds(text string) (out []string) {
	head := ""
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		switch {
		case len(w) > 3 && w[0] == "sched":
			head = fmt.Sprintf("sched %s type %s flags 0x0 0 buckets 0 active", w[1], strings.ToUpper(w[3]))
		case len(w) > 3 && w[0] == "FQ_CODEL" && head != "":
			out = append(out, head+" "+strings.Join(w, " "))
			head = ""
		}
	}
	return out
}

// A Numbered names a pipe, sched, queue or rule.
type Numbered struct {
	Kind   string
	Number int
}

// Numbers returns all numbers that our plans may use, in an order in which they
// can be deleted.
func Numbers() []Numbered {
	var out []Numbered
	for n := FirstRule; n < FirstRule+mostRules; n++ {
		out = append(out, Numbered{"rule", n})
	}
	queues := []int{queueHigh, pipeDown, pipeUp}
	for _, pipe := range []int{pipeDown, pipeUp} {
		for _, c := range plan.AllClasses() {
			queues = append(queues, classQueue(pipe, c))
		}
	}
	for _, n := range queues {
		out = append(out, Numbered{"queue", n})
	}
	return append(out, Numbered{"sched", pipeDown}, Numbered{"sched", pipeUp}, Numbered{"pipe", pipeDown}, Numbered{"pipe", pipeUp}, Numbered{"pipe", ControlPipe})
}
