// This part renders and parses the ALTQ lines of OpenBSD's old pf.conf(5)
// (to 5.4) with the HFSC scheduler, as the article about ALTQ uses them: one
// queue with a FIFO as short as the wanted latency or, if rules name traffic,
// one queue per class. OpenBSD 5.5 has ALTQ too, but spells its queues
// `oldqueue`; that is untested. Source: pf.conf(5) and pfctl's grammar before
// 5.5.

package pf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Names of our queues; the upload's is the article's. A queue's name is shared
// by all interfaces.
const (
	ALTQUp   = "bb"
	ALTQDown = "bb_down"
)

// A Bandwidth is a rate, or a percentage of the parent's bandwidth.
type ALTQBandwidth struct {
	Rate    unit.Rate
	Percent int // 1…100; used if Rate is 0
}

// An Interface is an `altq on` line.
type ALTQInterface struct {
	Device    string
	Scheduler string // hfsc, cbq or priq
	Bandwidth ALTQBandwidth
	Qlimit    int
	Queues    []string
}

// A Queue is a `queue` line.
type ALTQQueue struct {
	Name      string
	Bandwidth ALTQBandwidth
	Priority  int // −1: not given
	Qlimit    int // packets; 0: 50
	Scheduler string
	Options   []string    // between ( and ): default, red, ecn, …
	Curves    []ALTQCurve // HFSC's, after the options
	Queues    []string
}

// A Curve is one of HFSC's service curves: realtime is guaranteed and served
// first, linkshare is the share among siblings (default: the queue's
// bandwidth), upperlimit is the maximum.
type ALTQCurve struct {
	Name  string // realtime, linkshare or upperlimit
	First ALTQBandwidth
	Ms    int // duration of First, ms; 0: no First
	Then  ALTQBandwidth
}

// A Rule is a filter line; Queues are those of its `queue`.
type ALTQRule struct {
	Text   string
	Queues []string
}

// A Ruleset is the ALTQ part of a pf.conf and the rules that use it.
type ALTQRuleset struct {
	Interfaces []ALTQInterface
	Queues     []ALTQQueue
	Rules      []ALTQRule
}

// Render makes one queue per direction of a plan: the default queue, which
// takes all egress traffic. With classes it makes one queue per class and the
// match rules for them, which neither pass nor block packets. Only the
// article's style has the article's `pass` rule; as the last rule it also
// passes what earlier rules block. Notes list what ALTQ cannot express of the
// plan.
func RenderALTQ(p plan.Plan) (rs ALTQRuleset, notes []string, err error) {
	for _, d := range []struct {
		name string
		s    *plan.Shaper
		way  plan.Direction
	}{{ALTQUp, p.Up, plan.DirectionUp}, {ALTQDown, p.Down, plan.DirectionDown}} {
		if d.s == nil {
			continue
		}
		shares := p.Classes.Of(d.way == plan.DirectionDown)
		if d.s.AQM != plan.FIFO {
			return ALTQRuleset{}, nil, &plan.UnsupportedAQMError{AQM: d.s.AQM, Platform: "ALTQ", Have: []plan.AQM{plan.FIFO}}
		}
		if d.s.IngressOf != "" {
			return ALTQRuleset{}, nil, &plan.NoIngressError{Platform: "ALTQ", Side: plan.SideIFB, Why: "ALTQ queues on egress only; shape the download where it leaves towards the LAN"}
		}
		on := ALTQInterface{Device: d.s.Device, Scheduler: "hfsc", Bandwidth: ALTQBandwidth{Rate: d.s.Rate}}
		if shares != nil {
			queues := altqClassQueues(*d.s, shares)
			for _, q := range queues {
				on.Queues = append(on.Queues, q.Name)
			}
			rs.Queues = append(rs.Queues, queues...)
			rs.Rules = append(rs.Rules, matches(d.s.Device, d.way, p.Classes.Rules)...)
		} else {
			on.Queues = []string{d.name}
			rs.Queues = append(rs.Queues, ALTQQueue{Name: d.name, Bandwidth: ALTQBandwidth{Percent: 100}, Priority: -1, Qlimit: d.s.Limit, Scheduler: "hfsc", Options: []string{"default"}})
			if p.Basis != nil && p.Basis.Preferences.Style == plan.StyleArticle {
				rs.Rules = append(rs.Rules, ALTQRule{Text: "pass out on " + d.s.Device + " keep state queue( " + d.name + " )", Queues: []string{d.name}})
			}
		}
		rs.Interfaces = append(rs.Interfaces, on)
		if d.s.StabOverhead() != 0 || d.s.MPU != 0 {
			notes = append(notes, fmt.Sprintf("%s: ALTQ counts Ethernet frames; an overhead of %d bytes cannot be set", d.name, d.s.Overhead))
		}
	}
	return rs, notes, rs.Check()
}

// String writes the ruleset in the order that pfctl(8) requires: queueing
// before filtering.
func (rs ALTQRuleset) String() string {
	var b strings.Builder
	for _, i := range rs.Interfaces {
		b.WriteString(i.String() + "\n")
	}
	for _, q := range rs.Queues {
		b.WriteString(q.String() + "\n")
	}
	for _, r := range rs.Rules {
		b.WriteString(r.Text + "\n")
	}
	return b.String()
}

// String writes the `altq on` line.
func (i ALTQInterface) String() string {
	s := "altq on " + i.Device
	if b := i.Bandwidth.String(); b != "" {
		s += " bandwidth " + b
	}
	if i.Qlimit != 0 {
		s += " qlimit " + strconv.Itoa(i.Qlimit)
	}
	return s + " " + i.Scheduler + " queue { " + strings.Join(i.Queues, ", ") + " }"
}

// String writes the `queue` line.
func (q ALTQQueue) String() string {
	s := "queue " + q.Name
	if b := q.Bandwidth.String(); b != "" {
		s += " bandwidth " + b
	}
	if q.Priority >= 0 {
		s += " priority " + strconv.Itoa(q.Priority)
	}
	if q.Qlimit != 0 {
		s += " qlimit " + strconv.Itoa(q.Qlimit)
	}
	if q.Scheduler != "" {
		s += " " + q.Scheduler
	}
	if options := q.options(ALTQBandwidth.String); options != "" {
		s += " ( " + options + " )"
	}
	if len(q.Queues) > 0 {
		s += " { " + strings.Join(q.Queues, ", ") + " }"
	}
	return s
}

// options writes the options in parentheses; rate formats the rates.
func (q ALTQQueue) options(rate func(ALTQBandwidth) string) string {
	words := slices.Clone(q.Options)
	for _, c := range q.Curves {
		s := rate(c.Then)
		if c.Ms != 0 {
			s = fmt.Sprintf("(%s %d %s)", rate(c.First), c.Ms, s)
		}
		words = append(words, c.Name+" "+s)
	}
	return strings.Join(words, " ")
}

// String writes the bandwidth, exact to the bit; "" if none is given.
func (b ALTQBandwidth) String() string {
	if b.Rate == 0 {
		if b.Percent == 0 {
			return ""
		}
		return strconv.Itoa(b.Percent) + "%"
	}
	for _, u := range []struct {
		of   unit.Rate
		name string
	}{{unit.GbitPerSecond, "Gb"}, {unit.MbitPerSecond, "Mb"}, {unit.KbitPerSecond, "Kb"}} {
		if b.Rate%u.of == 0 {
			return strconv.FormatInt(int64(b.Rate/u.of), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b.Rate), 10) + "b"
}

// isDefault reports whether the queue takes packets that no rule assigns.
func (q ALTQQueue) isDefault() bool {
	for _, o := range q.Options {
		if o == "default" {
			return true
		}
	}
	return false
}

// Check returns pfctl(8)'s errors about a ruleset as a whole.
func (rs ALTQRuleset) Check() error {
	for n, q := range rs.Queues {
		for _, other := range rs.Queues[:n] {
			for _, i := range rs.Interfaces {
				if other.Name == q.Name && slices.Contains(i.Queues, q.Name) {
					return fmt.Errorf("queue %s already exists on interface %s", q.Name, i.Device)
				}
			}
		}
	}
	for _, i := range rs.Interfaces {
		if i.Bandwidth.Rate > max32 {
			return fmt.Errorf("altq on %s: %s is above %s, which 32 bits hold", i.Device, i.Bandwidth, ALTQBandwidth{Rate: max32})
		}
		defaults, share := 0, unit.Rate(0)
		for _, name := range i.Queues {
			q, ok := rs.find(name)
			if !ok {
				return fmt.Errorf("altq on %s: queue %s has no definition", i.Device, name)
			}
			share += q.Bandwidth.of(i.Bandwidth.Rate)
			defaults += rs.defaults(q, 0)
		}
		if i.Scheduler != "priq" && i.Bandwidth.Rate != 0 && share > i.Bandwidth.Rate {
			return fmt.Errorf("altq on %s: the sum of the child bandwidth (%s) higher than parent %s", i.Device, ALTQBandwidth{Rate: share}, i.Bandwidth)
		}
		if defaults != 1 {
			return fmt.Errorf("altq on %s: should have one default queue, not %d", i.Device, defaults)
		}
		if i.Scheduler == "hfsc" && i.Bandwidth.Rate != 0 {
			if err := (&admission{ALTQRuleset: rs, rate: i.Bandwidth.Rate}).below(i.Bandwidth.Rate, i.Queues, 0); err != nil {
				return fmt.Errorf("altq on %s: %w", i.Device, err)
			}
		}
	}
	for _, r := range rs.Rules {
		for _, name := range r.Queues {
			if _, ok := rs.find(name); !ok {
				return fmt.Errorf("queue %s is not defined", name)
			}
		}
	}
	return nil
}

func (b ALTQBandwidth) of(parent unit.Rate) unit.Rate {
	if b.Rate != 0 {
		return b.Rate
	}
	return parent / 100 * unit.Rate(b.Percent)
}

func (rs ALTQRuleset) defaults(q ALTQQueue, depth int) (n int) {
	if q.isDefault() {
		n++
	}
	for _, name := range q.Queues {
		if child, ok := rs.find(name); ok && depth < len(rs.Queues) {
			n += rs.defaults(child, depth+1)
		}
	}
	return n
}

func (rs ALTQRuleset) find(name string) (ALTQQueue, bool) {
	for _, q := range rs.Queues {
		if q.Name == name {
			return q, true
		}
	}
	return ALTQQueue{}, false
}
