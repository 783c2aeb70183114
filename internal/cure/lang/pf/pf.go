// Package pf renders and parses the queues of OpenBSD: those of pf.conf(5) (6.2 and
// later), flow queues among them, and ALTQ (to 5.4). It reads files written by hand or by us and
// the output of `pfctl -vsq`, and returns the errors of pfctl(8). Source:
// pf.conf(5), pfctl's grammar, and recorded answers of the real pfctl
// (testkit/verdicts).
package pf

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Limits that pfctl(8) enforces.
const (
	MaxFlows   = 32767
	MaxQuantum = 65535 // bytes
	MaxQlimit  = 65535 // packets
	MaxName    = 63    // characters (PF_QNAME_SIZE − 1)
)

// max32 is the highest rate of ALTQ, and of queues before bandwidths became 64
// bits wide (2026); higher rates silently wrap around.
const max32 = 4294967295 * unit.BitPerSecond

// Names of our queues, as in the article.
const (
	UpQueue   = "outq"
	DownQueue = "inq"
)

// A Queue is one `queue` line. A root queue has a Device, any other a Parent.
// Zero fields are not written.
type Queue struct {
	Name      string
	Device    string
	Parent    string
	Flows     int       // 1…32767: a flow queue (FQ-CoDel); 0: a plain queue
	Quantum   int       // bytes, 1…65535; 0: MTU + 64
	Bandwidth unit.Rate // share under contention
	Min       unit.Rate // guarantee; pf then silently uses no flow queue
	Max       unit.Rate // maximum
	Qlimit    int       // packets; 0: 50, or 1024 for a root with flows and no bandwidth
	Default   bool      // takes packets that no rule assigns
}

// A Rule is a line that may assign packets to queues.
type Rule struct {
	Text   string
	Queues []string // of `set queue X` or `set queue (X, Y)`
}

// A Ruleset holds the queues of a pf.conf and the rules that use them.
type Ruleset struct {
	Queues []Queue
	Rules  []Rule
}

// Render makes the queues of a plan. Without classes one line per direction is
// enough: all egress packets of the device use its default queue. With classes
// there is one queue per class and match rules, which neither pass nor block
// packets. Notes list what pf cannot express of the plan.
func Render(p plan.Plan) (rs Ruleset, notes []string, err error) {
	for _, d := range []struct {
		name string
		s    *plan.Shaper
		way  plan.Direction
	}{{UpQueue, p.Up, plan.DirectionUp}, {DownQueue, p.Down, plan.DirectionDown}} {
		if d.s == nil {
			continue
		}
		shares := p.Classes.Of(d.way == plan.DirectionDown)
		q, more, err := queue(d.name, *d.s)
		if err != nil {
			return Ruleset{}, nil, fmt.Errorf("render queue %s: %w", d.name, err)
		}
		notes = append(notes, more...)
		if shares == nil || d.s.AQM != plan.FQCoDel {
			rs.Queues = append(rs.Queues, q)
			continue
		}
		queues, err := classQueues(*d.s, shares)
		if err != nil {
			return Ruleset{}, nil, err
		}
		rs.Queues = append(rs.Queues, queues...)
		rs.Rules = append(rs.Rules, Matches(d.s.Device, d.way, p.Classes.Rules, setQueue)...)
	}
	if err := rs.Check(); err != nil {
		return Ruleset{}, nil, err
	}
	for _, h := range rs.Lint() {
		notes = append(notes, h.String())
	}
	return rs, notes, nil
}

// queue makes the line of one direction, with notes.
func queue(name string, s plan.Shaper) (Queue, []string, error) {
	q := Queue{
		Name: name, Device: s.Device, Bandwidth: s.Rate, Max: s.Rate,
		Qlimit: s.Limit, Quantum: int(s.Quantum), Default: true,
	}
	switch s.AQM {
	case plan.FQCoDel:
		q.Flows = cmp.Or(s.Flows, 1024)
	case plan.FIFO:
		q.Quantum = 0
	default:
		return Queue{}, nil, &plan.UnsupportedAQMError{AQM: s.AQM, Platform: "pf", Have: []plan.AQM{plan.FQCoDel, plan.FIFO}}
	}
	if s.IngressOf != "" {
		return Queue{}, nil, &plan.NoIngressError{Platform: "pf", Side: plan.SideIFB, Why: "pf queues on egress only; shape the download where it leaves towards the LAN"}
	}
	return q, lost(name, s), q.check()
}

// lost lists the settings of a shaper that a pf queue cannot express.
func lost(name string, s plan.Shaper) (notes []string) {
	say := func(lost bool, format string, args ...any) {
		if lost {
			notes = append(notes, name+": "+fmt.Sprintf(format, args...))
		}
	}
	flow := s.AQM == plan.FQCoDel
	say(flow && (s.Target != 0 && unit.Ms(s.Target) != 5 || s.Interval != 0 && unit.Ms(s.Interval) != 100),
		"target %v and interval %v cannot be set; pf has 5 ms and 100 ms", s.Target, s.Interval)
	say(flow && s.ECN, "pf drops and never marks (no ECN)")
	say(s.StabOverhead() != 0 || s.MPU != 0, "pf counts Ethernet frames; an overhead of %d bytes cannot be set", s.Overhead)
	return notes
}

// check returns pfctl(8)'s errors about the queue's values.
func (q Queue) check() error {
	switch {
	case len(q.Name) > MaxName:
		return fmt.Errorf("queuename too long")
	case q.Flows < 0 || q.Flows > MaxFlows:
		return fmt.Errorf("number of flows out of range: max %d", MaxFlows)
	case q.Quantum < 0 || q.Quantum > MaxQuantum:
		return fmt.Errorf("quantum out of range: max %d", MaxQuantum)
	case q.Qlimit < 0 || q.Qlimit > MaxQlimit:
		return fmt.Errorf("qlimit out of range: max %d", MaxQlimit)
	}
	return nil
}

// String writes the queue as one line of pf.conf(5).
func (q Queue) String() string {
	w := []string{"queue", q.Name}
	add := func(set bool, word, value string) {
		if set {
			w = append(w, word, value)
		}
	}
	add(q.Device != "", "on", q.Device)
	add(q.Parent != "", "parent", q.Parent)
	add(q.Flows != 0, "flows", strconv.Itoa(q.Flows))
	add(q.Quantum != 0, "quantum", strconv.Itoa(q.Quantum))
	add(q.Bandwidth != 0, "bandwidth", Rate(q.Bandwidth))
	add(q.Min != 0, "min", Rate(q.Min))
	add(q.Max != 0, "max", Rate(q.Max))
	add(q.Qlimit != 0, "qlimit", strconv.Itoa(q.Qlimit))
	if q.Default {
		w = append(w, "default")
	}
	return strings.Join(w, " ")
}

// String writes the ruleset as pf.conf(5) text.
func (rs Ruleset) String() string {
	var b strings.Builder
	for _, q := range rs.Queues {
		b.WriteString(q.String() + "\n")
	}
	for _, r := range rs.Rules {
		b.WriteString(r.Text + "\n")
	}
	return b.String()
}

// Rate writes a rate as pf.conf(5) takes it, exact to the bit: 11M, 950K.
func Rate(r unit.Rate) string {
	for _, u := range []struct {
		of   unit.Rate
		name string
	}{{unit.GbitPerSecond, "G"}, {unit.MbitPerSecond, "M"}, {unit.KbitPerSecond, "K"}} {
		if r != 0 && r%u.of == 0 {
			return strconv.FormatInt(int64(r/u.of), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(r), 10)
}
