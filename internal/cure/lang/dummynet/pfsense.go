package dummynet

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// FirstLimiter is the number of our first limiter on pfSense; pfSense numbers
// its own from 1.
const FirstLimiter = 7001

// Limiters are pfSense's dnshaper section of config.xml.
type Limiters struct {
	XMLName xml.Name  `xml:"dnshaper"`
	Queues  []Limiter `xml:"queue"`
}

// A Limiter is one pipe with its scheduler and the queues that rules name.
type Limiter struct {
	Name      string         `xml:"name"`
	Number    int            `xml:"number"`
	Enabled   string         `xml:"enabled"` // on
	Bandwidth []LimiterRate  `xml:"bandwidth>item"`
	Qlimit    string         `xml:"qlimit,omitempty"` // slots of a FIFO
	Mask      string         `xml:"mask"`
	AQM       string         `xml:"aqm"`
	Sched     string         `xml:"sched"`
	Target    string         `xml:"param_fq_codel_target,omitempty"`   // ms
	Interval  string         `xml:"param_fq_codel_interval,omitempty"` // ms
	Quantum   string         `xml:"param_fq_codel_quantum,omitempty"`
	Limit     string         `xml:"param_fq_codel_limit,omitempty"`
	Flows     string         `xml:"param_fq_codel_flows,omitempty"`
	ECN       string         `xml:"ecn,omitempty"` // on
	Children  []LimiterQueue `xml:"queue"`
}

// A LimiterRate is a limiter's bandwidth; pfSense rounds Value to a whole number.
type LimiterRate struct {
	Value string `xml:"bw"`
	Scale string `xml:"bwscale"` // b, Kb or Mb
	Sched string `xml:"bwsched"`
}

// A LimiterQueue is a child of a limiter. pfSense assigns its number and
// ignores the one in config.xml.
type LimiterQueue struct {
	Name     string `xml:"name"`
	Enabled  string `xml:"enabled"`
	Qlimit   string `xml:"qlimit,omitempty"` // slots
	Weight   string `xml:"weight,omitempty"` // 1…100
	Mask     string `xml:"mask"`
	AQM      string `xml:"aqm"`
	Target   string `xml:"param_codel_target,omitempty"`   // ms
	Interval string `xml:"param_codel_interval,omitempty"` // ms
	ECN      string `xml:"ecn,omitempty"`                  // on
}

// LimiterNumbers is how many limiters we have at most: up, down, and control traffic.
const LimiterNumbers = 3

// limiterPrefix is how our limiters' names begin.
const limiterPrefix = "unbloat_"

// RenderLimiters makes pfSense's limiters of a plan, with the numbers first
// (up), first + 1 (down) and first + 2 (control traffic). The download alone is an error: a rule accepts a
// queue for the return path only together with one for the forward path.
func RenderLimiters(p plan.Plan, first int) (ls Limiters, notes []string, err error) {
	if p.Up == nil {
		return Limiters{}, nil, fmt.Errorf("pfSense's rules take a limiter for the download only beside one for the upload; give --up too")
	}
	for _, d := range []struct {
		name   string
		number int
		s      *plan.Shaper
	}{{"up", first, p.Up}, {"down", first + 1, p.Down}} {
		if d.s == nil {
			continue
		}
		var c Config
		if err := c.add(d.number, *d.s); err != nil { // the same limits as dnctl's
			return Limiters{}, nil, fmt.Errorf("render %s: %w", d.name, err)
		}
		l := limiter(d.name, d.number, *d.s)
		if shares := sharesOf(p, d.s); shares != nil {
			l.divide(*d.s, shares)
		}
		ls.Queues = append(ls.Queues, l)
		if d.s.Target%time.Millisecond != 0 || d.s.Interval%time.Millisecond != 0 {
			notes = append(notes, d.name+": pfSense takes whole milliseconds; target and interval are rounded up")
		}
	}
	ls.addControl(p, first+LimiterNumbers-1)
	return ls, notes, nil
}

func limiter(name string, number int, s plan.Shaper) Limiter {
	value, scale := metric(s.Rate)
	if scale == "Gbit" {
		value, scale = value*1000, "Mbit"
	}
	l := Limiter{
		Name: limiterPrefix + name, Number: number, Enabled: "on",
		Bandwidth: []LimiterRate{{Value: strconv.FormatInt(value, 10), Scale: strings.TrimSuffix(scale, "it"), Sched: "none"}},
		Mask:      "none", AQM: "droptail", Sched: "fifo",
		Children: []LimiterQueue{{Name: limiterPrefix + name + "_q", Enabled: "on", Mask: "none", AQM: "droptail"}},
	}
	if s.AQM == plan.FIFO {
		l.Qlimit = orNone(s.Limit)
		return l
	}
	l.Sched = "fq_codel"
	l.Target, l.Interval = wholeMs(s.Target), wholeMs(s.Interval)
	l.Quantum, l.Limit, l.Flows = strconv.Itoa(cmp.Or(int(s.Quantum), 1514)), strconv.Itoa(cmp.Or(s.Limit, 10240)), strconv.Itoa(cmp.Or(s.Flows, 1024))
	if s.ECN {
		l.ECN = "on"
	}
	return l
}

// String writes the section as XML.
func (ls Limiters) String() string {
	b, err := xml.MarshalIndent(ls, "", "  ")
	if err != nil {
		panic("marshal limiters: " + err.Error()) // it holds only strings and numbers
	}
	return string(b) + "\n"
}

// ParseLimiters reads the dnshaper section of a config.xml.
func ParseLimiters(text string) (Limiters, error) {
	var ls Limiters
	if err := xml.Unmarshal([]byte(text), &ls); err != nil {
		return Limiters{}, fmt.Errorf("read dnshaper section: %w", err)
	}
	for _, l := range ls.Queues {
		if l.Number < 1 || l.Number > MaxNumber {
			return Limiters{}, fmt.Errorf("limiter %q: number %d is not within 1…%d", l.Name, l.Number, MaxNumber)
		}
		if _, err := l.Rate(); err != nil {
			return Limiters{}, err
		}
	}
	return ls, nil
}

// Rate returns the limiter's rate in bit/s as pfSense rounds it, or an error if
// it is out of range.
func (l Limiter) Rate() (unit.Rate, error) {
	if len(l.Bandwidth) == 0 {
		return 0, fmt.Errorf("limiter %q has no bandwidth", l.Name)
	}
	b := l.Bandwidth[0]
	of, ok := map[string]float64{"b": 1, "Kb": 1e3, "Mb": 1e6}[b.Scale]
	value, err := strconv.ParseFloat(b.Value, 64)
	if !ok || err != nil || !(value >= 1) || value*of > float64(MaxRate) {
		return 0, fmt.Errorf("limiter %q: bandwidth %q %q is not within 1 b…%d b", l.Name, b.Value, b.Scale, int64(MaxRate))
	}
	return unit.Rate(float64(int64(value+0.5)) * of), nil
}

// Words describes the limiter's queue, for people.
func (l Limiter) Words() string {
	switch {
	case l.Sched == "fq_codel":
		return strings.TrimSpace("FQ-CoDel" + l.parameters())
	case l.Sched == "wf2q+":
		var shares []string
		for _, q := range l.Children {
			shares = append(shares, q.Name+" "+q.Weight)
		}
		return "WF2Q+, which shares by weight (" + strings.Join(shares, ", ") + ")"
	case l.Sched != "fifo" && l.Sched != "":
		return l.Sched
	case l.AQM != "droptail" && l.AQM != "":
		return l.AQM
	case l.Qlimit != "":
		return "a FIFO of " + l.Qlimit + " packets"
	}
	return fmt.Sprintf("a FIFO of %d packets", DefaultSlots)
}

// RulesLimiter writes /tmp/rules.limiter as pfSense generates it from the
// limiters; firstQueue is the first free number of a queue.
func (ls Limiters) RulesLimiter(firstQueue int) string {
	n := firstQueue - 1
	return ls.rulesLimiter(func(l Limiter) string { return strconv.Itoa(l.Number) }, func(LimiterQueue) string { n++; return strconv.Itoa(n) })
}

// RulesByName writes the same with names in place of numbers, which only
// pfSense knows.
func (ls Limiters) RulesByName() string {
	return ls.rulesLimiter(func(l Limiter) string { return l.Name }, func(q LimiterQueue) string { return q.Name })
}

func (ls Limiters) rulesLimiter(limiter func(Limiter) string, queue func(LimiterQueue) string) string {
	var b strings.Builder
	for _, l := range ls.Queues {
		if l.Enabled != "on" || len(l.Bandwidth) == 0 {
			continue
		}
		slots := ""
		if l.Qlimit != "" {
			slots = " queue " + l.Qlimit
		}
		n := limiter(l)
		fmt.Fprintf(&b, "pipe %s config  bw %s%s%s %s\n", n, wholeNumber(l.Bandwidth[0].Value), l.Bandwidth[0].Scale, slots, l.AQM)
		fmt.Fprintf(&b, "sched %s config pipe %s type %s%s\n", n, n, l.Sched, l.parameters())
		for _, q := range l.Children {
			fmt.Fprintf(&b, "queue %s config pipe %s %s\n", queue(q), n, q.words())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// wholeNumber rounds a bandwidth as pfSense does.
func wholeNumber(s string) string {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return strconv.FormatInt(int64(math.Round(f)), 10)
}

// parameters writes fq_codel's.
func (l Limiter) parameters() string {
	if l.Sched != "fq_codel" {
		return ""
	}
	s := ""
	for _, f := range []struct{ name, value, unit string }{
		{"target", l.Target, "ms"}, {"interval", l.Interval, "ms"}, {"quantum", l.Quantum, ""}, {"limit", l.Limit, ""}, {"flows", l.Flows, ""},
	} {
		if f.value != "" {
			s += " " + f.name + " " + f.value + f.unit
		}
	}
	if l.ECN == "on" {
		return s + " ecn"
	}
	return s + " noecn"
}

// A LimiterRule is a floating rule that sends the WAN's packets through the
// limiters. For pf the direction is that in which a connection was opened, so
// there is one rule for each.
type LimiterRule struct {
	Name      string // unique
	Family    string // inet, inet6, inet46
	Protocol  string // "": any
	From, To  RuleEnd
	Direction string // out: opened from the home; in: from outside
	In, Out   string // queue names for packets in the connection's direction, and for replies; "": none
}

// Rules returns the rules for the limiters of a plan in pf's order: the last
// match wins. The error says that there are too many.
func (ls Limiters) Rules(p plan.Plan) ([]LimiterRule, error) {
	passing := ls.controlRules()
	if len(passing) > 0 {
		ls.Queues = ls.Queues[:len(ls.Queues)-1]
	}
	if len(ls.Queues[0].Children) > 1 {
		rules, err := ls.classRules(p)
		return append(rules, passing...), err
	}
	rules := ls.rules()
	for i, r := range rules {
		rules[i].Name, rules[i].Family = "what is opened "+r.Direction, "inet46"
	}
	return append(rules, passing...), nil
}

// rules returns the rules of limiters without classes.
func (ls Limiters) rules() []LimiterRule {
	var up, down *LimiterQueue
	for _, l := range ls.Queues {
		if strings.HasSuffix(l.Name, "_up") {
			up = &l.Children[0]
		} else {
			down = &l.Children[0]
		}
	}
	if up == nil {
		return nil
	}
	if down == nil {
		return []LimiterRule{{Direction: "out", In: up.Name}}
	}
	return []LimiterRule{{Direction: "out", In: up.Name, Out: down.Name}, {Direction: "in", In: down.Name, Out: up.Name}}
}
