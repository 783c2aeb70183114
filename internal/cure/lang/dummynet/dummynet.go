// Package dummynet renders and parses FreeBSD's dummynet: the dnctl(8) and
// ipfw(8) commands themselves, OPNsense's items that become such commands, and
// pfSense's limiters. It reports input that these tools silently misread.
// Sources: dnctl(8), ipfw(8), FreeBSD's sbin/ipfw/dummynet.c, and the recorded
// answers of the real tools (package verdicts).
package dummynet

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Limits of dnctl(8) and the kernel. Values above MaxQuantum, MaxLimit and
// MaxFlows are silently lowered.
const (
	MaxRate     unit.Rate = math.MaxUint32 - 1 // 4294967295 itself means unlimited
	MaxNumber             = 65535              // of a pipe, scheduler or queue
	MaxRule               = 65534
	MinSlots              = 2 // packets of a queue
	MaxSlots              = 100
	MaxQuantum            = 9000 // bytes
	MaxLimit              = 20480
	MaxFlows              = 65536
	MaxWeight             = 100
	MaxTarget             = 5 * time.Second
	MaxInterval           = 100 * time.Second
)

// DefaultSlots is the default length of a queue, in packets.
const DefaultSlots = 50

// A Pipe limits packets to a rate.
type Pipe struct {
	Number    int
	Bandwidth unit.Rate
	Slots     int    // packets of a FIFO; 0: 50
	CoDel     string // what follows `codel`, as it was written; "": none
}

// A Sched is the scheduler of the pipe of the same number. Zero fields are the
// kernel's defaults.
type Sched struct {
	Number   int
	Pipe     int
	Type     string // fq_codel
	Mask     string
	Target   time.Duration
	Interval time.Duration
	Quantum  int
	Limit    int
	Flows    int
	NoECN    bool // ECN is the default
}

// A Queue is one input of a scheduler.
type Queue struct {
	Number int
	Sched  int
	Weight int // 1…100; fq_codel ignores it
	Slots  int
	CoDel  string // what follows `codel`, as it was written; "": none
}

// A Rule is an ipfw rule that sends packets to a queue or pipe.
type Rule struct {
	Number int
	Action string // queue or pipe
	Target int    // its number; 0: the one that the flow's entry in a table says (tablearg)
	Match  string // "ip from any to any out xmit igb0"
}

// A Config holds all dummynet objects and rules of a plan.
type Config struct {
	Pipes  []Pipe
	Scheds []Sched
	Queues []Queue
	Tables []Table
	Rules  []Rule
}

// Numbers of our pipes and queues.
const (
	pipeUp    = 1
	pipeDown  = 2
	queueHigh = 3 // the article's third queue
)

// FirstRule is the number of our first ipfw(8) rule: below OPNsense's 60000,
// above most others.
const FirstRule = 59001

// Render makes the pipes, schedulers, queues and rules of a plan. Notes list
// what dummynet cannot express. The error names a value out of range.
func Render(p plan.Plan) (c Config, notes []string, err error) {
	for _, d := range []struct {
		name   string
		number int
		s      *plan.Shaper
	}{{"up", pipeUp, p.Up}, {"down", pipeDown, p.Down}} {
		if d.s == nil {
			continue
		}
		if shares := sharesOf(p, d.s); shares != nil {
			err = c.addClasses(d.number, *d.s, shares)
		} else {
			err = c.add(d.number, *d.s)
		}
		if err != nil {
			return Config{}, nil, fmt.Errorf("render %s: %w", d.name, err)
		}
		if d.s.StabOverhead() != 0 || d.s.MPU != 0 {
			notes = append(notes, fmt.Sprintf("%s: dummynet counts IP packets alone; an overhead of %d bytes cannot be set", d.name, d.s.Overhead))
		}
	}
	if err := c.addControl(p); err != nil {
		return Config{}, nil, fmt.Errorf("render %s: %w", controlName, err)
	}
	if p.Up != nil && p.Up.AQM == plan.FQCoDel && asArticle(p) {
		c.addHighPriority(p.WAN)
	}
	c.addRules(p)
	if len(c.Rules) > mostRules {
		return Config{}, nil, fmt.Errorf("the classes' rules take %d lines of ipfw(8), and a plan has %d; join or leave out some", len(c.Rules), mostRules)
	}
	return c, notes, nil
}

// asArticle reports whether the plan wants the article's queues and rules.
func asArticle(p plan.Plan) bool {
	return p.Classes == nil && p.Basis != nil && p.Basis.Preferences.Style == plan.StyleArticle
}

// add makes one direction's pipe, scheduler and queue.
func (c *Config) add(number int, s plan.Shaper) error {
	if s.Rate < 1 || s.Rate > MaxRate {
		return fmt.Errorf("rate %s is not within 1 bit/s…%s", s.Rate, MaxRate)
	}
	switch s.AQM {
	case plan.FIFO:
		if s.Limit != 0 && (s.Limit < MinSlots || s.Limit > MaxSlots) {
			return fmt.Errorf("limit %d is not within %d…%d packets", s.Limit, MinSlots, MaxSlots)
		}
		c.Pipes = append(c.Pipes, Pipe{Number: number, Bandwidth: s.Rate, Slots: s.Limit})
		return nil
	case plan.FQCoDel:
	default:
		return &plan.UnsupportedAQMError{AQM: s.AQM, Platform: "dummynet", Have: []plan.AQM{plan.FQCoDel, plan.FIFO}}
	}
	sched := Sched{
		Number: number, Pipe: number, Type: "fq_codel", Target: s.Target, Interval: s.Interval,
		Quantum: int(s.Quantum), Limit: s.Limit, Flows: s.Flows, NoECN: !s.ECN,
	}
	switch {
	case s.Target > MaxTarget || s.Interval > MaxInterval:
		return fmt.Errorf("target %v and interval %v are at most %v and %v", s.Target, s.Interval, MaxTarget, MaxInterval)
	case sched.Quantum > MaxQuantum || sched.Limit > MaxLimit || sched.Flows > MaxFlows:
		return fmt.Errorf("quantum %d, limit %d and flows %d are at most %d, %d and %d", sched.Quantum, sched.Limit, sched.Flows, MaxQuantum, MaxLimit, MaxFlows)
	}
	c.Pipes = append(c.Pipes, Pipe{Number: number, Bandwidth: s.Rate})
	c.Scheds = append(c.Scheds, sched)
	c.Queues = append(c.Queues, Queue{Number: number, Sched: number, Weight: 1})
	return nil
}

// addHighPriority makes the article's queue of weight 10 and its rules.
func (c *Config) addHighPriority(wan string) {
	c.Queues = append(c.Queues, Queue{Number: queueHigh, Sched: pipeUp, Weight: 10})
	for _, match := range []string{
		"udp from me to any dst-port 53 out xmit " + wan,
		"tcp from any to any tcpflags ack iplen 0-80 out xmit " + wan,
	} {
		c.Rules = append(c.Rules, Rule{Number: FirstRule + len(c.Rules), Action: "queue", Target: queueHigh, Match: match})
	}
}

// addRules adds the rules that send the WAN's packets into the pipes. The first
// match wins, so specific rules come first.
func (c *Config) addRules(p plan.Plan) {
	for _, d := range []struct {
		s      *plan.Shaper
		number int
		way    plan.Direction
		match  string
	}{{p.Up, pipeUp, plan.DirectionUp, "out xmit "}, {p.Down, pipeDown, plan.DirectionDown, "in recv "}} {
		if d.s == nil {
			continue
		}
		if sharesOf(p, d.s) != nil {
			c.addClassRules(p, d.way, d.number)
			continue
		}
		action := "queue"
		if d.s.AQM == plan.FIFO {
			action = "pipe"
		}
		c.Rules = append(c.Rules, Rule{Number: FirstRule + len(c.Rules), Action: action, Target: d.number, Match: "ip from any to any " + d.match + p.WAN})
	}
}

// String writes the pipe's dnctl(8) command without the program's name.
func (p Pipe) String() string {
	s := fmt.Sprintf("pipe %d config bw %s", p.Number, Bandwidth(p.Bandwidth))
	if p.Slots != 0 {
		s += " queue " + strconv.Itoa(p.Slots)
	}
	if p.CoDel != "" {
		s += " codel " + p.CoDel
	}
	return s
}

// String writes the scheduler's command. dnctl takes everything after `type`
// for the type's parameters, so the pipe comes first.
func (s Sched) String() string {
	w := []string{fmt.Sprintf("sched %d config pipe %d", s.Number, s.Pipe)}
	if s.Mask != "" {
		w = append(w, "mask", s.Mask)
	}
	w = append(w, "type", s.Type)
	if s.Type != "fq_codel" {
		return strings.Join(w, " ")
	}
	for _, f := range []struct {
		name, value string
		set         bool
	}{
		{"target", unit.MsOrUs(s.Target), s.Target != 0},
		{"interval", unit.MsOrUs(s.Interval), s.Interval != 0},
		{"quantum", strconv.Itoa(s.Quantum), s.Quantum != 0},
		{"limit", strconv.Itoa(s.Limit), s.Limit != 0},
		{"flows", strconv.Itoa(s.Flows), s.Flows != 0},
	} {
		if f.set {
			w = append(w, f.name, f.value)
		}
	}
	if s.NoECN {
		return strings.Join(append(w, "noecn"), " ")
	}
	return strings.Join(append(w, "ecn"), " ")
}

// String writes the queue's command.
func (q Queue) String() string {
	s := fmt.Sprintf("queue %d config sched %d", q.Number, q.Sched)
	if q.Weight != 0 {
		s += " weight " + strconv.Itoa(q.Weight)
	}
	if q.Slots != 0 {
		s += " queue " + strconv.Itoa(q.Slots)
	}
	if q.CoDel != "" { // everything after it belongs to CoDel
		s += " codel " + q.CoDel
	}
	return s
}

// String writes the rule's ipfw(8) command without the program's name.
func (r Rule) String() string {
	return fmt.Sprintf("add %05d %s %s %s", r.Number, r.Action, r.target(), r.Match)
}

func (r Rule) target() string {
	if r.Target == 0 {
		return tablearg
	}
	return strconv.Itoa(r.Target)
}

// Commands returns the argument vectors that create the configuration, each
// object after those it refers to.
func (c Config) Commands() [][]string {
	var out [][]string
	add := func(program, command string) {
		out = append(out, append([]string{program}, strings.Fields(command)...))
	}
	for _, p := range c.Pipes {
		add("dnctl", p.String())
	}
	for _, s := range c.Scheds {
		add("dnctl", s.String())
	}
	for _, q := range c.Queues {
		add("dnctl", q.String())
	}
	for _, t := range c.Tables {
		add("ipfw", t.String())
	}
	for _, r := range c.Rules {
		add("ipfw", r.String())
	}
	return out
}

// String writes the commands as shell lines.
func (c Config) String() string {
	var b strings.Builder
	for _, argv := range c.Commands() {
		b.WriteString(strings.Join(argv, " ") + "\n")
	}
	return b.String()
}

// Bandwidth formats a rate for dnctl(8) as a whole number. dnctl reads the
// fraction 1.5Mbit/s as 1 bit/s.
func Bandwidth(r unit.Rate) string {
	number, metric := metric(r)
	return strconv.FormatInt(number, 10) + metric + "/s"
}

// metric splits a rate into a whole number and its largest unit.
func metric(r unit.Rate) (int64, string) {
	for _, u := range []struct {
		of   unit.Rate
		name string
	}{{unit.GbitPerSecond, "Gbit"}, {unit.MbitPerSecond, "Mbit"}, {unit.KbitPerSecond, "Kbit"}} {
		if r != 0 && r%u.of == 0 {
			return int64(r / u.of), u.name
		}
	}
	return int64(r), "bit"
}
