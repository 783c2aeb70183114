package dummynet

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Items are OPNsense's traffic shaper objects, as its REST API takes them: all
// values are strings.
type Items struct {
	Pipes  []PipeItem  `json:"pipes"`
	Queues []QueueItem `json:"queues"`
	Rules  []RuleItem  `json:"rules"`
}

// A PipeItem is the body of addPipe and setPipe.
type PipeItem struct {
	UUID            string `json:"-"`
	Number          string `json:"number"` // 1…65535; set requires one, add chooses it
	Enabled         string `json:"enabled"`
	Bandwidth       string `json:"bandwidth"` // a whole number ≥ 1
	BandwidthMetric string `json:"bandwidthMetric"`
	Queue           string `json:"queue,omitempty"` // slots, 2…100
	Mask            string `json:"mask"`
	Scheduler       string `json:"scheduler"`
	CoDelEnable     string `json:"codel_enable"`
	CoDelTarget     string `json:"codel_target,omitempty"`   // ms, 1…10000
	CoDelInterval   string `json:"codel_interval,omitempty"` // ms, 1…10000
	CoDelECN        string `json:"codel_ecn_enable"`
	Quantum         string `json:"fqcodel_quantum,omitempty"` // 1…65535
	Limit           string `json:"fqcodel_limit,omitempty"`
	Flows           string `json:"fqcodel_flows,omitempty"`
	Description     string `json:"description"`
}

// A QueueItem is the body of addQueue and setQueue.
type QueueItem struct {
	UUID        string `json:"-"`
	Number      string `json:"number"` // 1…65535, as a pipe's
	Enabled     string `json:"enabled"`
	Pipe        string `json:"pipe"`   // the pipe's uuid
	Weight      string `json:"weight"` // 1…100
	Mask        string `json:"mask"`
	Description string `json:"description"`
	// CoDel of a class's queue; "" is the model's default.
	CoDelEnable   string `json:"codel_enable,omitempty"`
	CoDelTarget   string `json:"codel_target,omitempty"`   // ms, 1…10000
	CoDelInterval string `json:"codel_interval,omitempty"` // ms, 1…10000
	CoDelECN      string `json:"codel_ecn_enable,omitempty"`
}

// A RuleItem is the body of addRule and setRule.
type RuleItem struct {
	UUID        string `json:"-"`
	Enabled     string `json:"enabled"`
	Sequence    string `json:"sequence"` // 1…1000000; the lowest that matches wins
	Interface   string `json:"interface"`
	Proto       string `json:"proto"`
	Source      string `json:"source"`
	SourcePort  string `json:"src_port"`
	Destination string `json:"destination"`
	DestPort    string `json:"dst_port"`
	DSCP        string `json:"dscp,omitempty"`  // names, joined by commas
	IPLen       string `json:"iplen,omitempty"` // the longest IP packet
	Direction   string `json:"direction"`
	Target      string `json:"target"` // the uuid of the queue, or of the pipe
	Description string `json:"description"`
}

// RouterAddress is the placeholder for the router's own WAN address, which a
// plan does not know.
const RouterAddress = "ROUTER-ADDRESS"

// Limits of OPNsense's model; the kernel lowers values to its own limits.
const maxItemNumber = 65535

// UUID returns the uuid of our item of this name ("pipe up"). It is always the
// same, so setPipe/<uuid> changes an existing item and adds none. It has the
// form of version 4, the only one that OPNsense accepts since 23.1.
func UUID(name string) string { return uuid(name, 0x40) }

// EarlierUUID returns the uuid that earlier versions of unbloat used: version
// 8, which OPNsense accepted until 23.1.
func EarlierUUID(name string) string { return uuid(name, 0x80) }

// uuid derives a uuid from a name; version is the version in the high four bits
// (RFC 9562 §4.2).
func uuid(name string, version byte) string {
	h := sha256.Sum256([]byte("unbloat " + name))
	h[6], h[8] = h[6]&0x0f|version, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// firstNumber is the first number of our pipes and queues; OPNsense's own begin
// at 10000.
const firstNumber = 20001

// ItemNames returns the names of all items of a kind (pipe, queue, rule) that
// plans may create, in the order of their numbers.
func ItemNames(kind string) []string {
	queues, rules := classItems()
	switch kind {
	case "pipe":
		return []string{"up", "down", controlName}
	case "queue":
		return append([]string{"up", "down", "up, high priority"}, queues...)
	default:
		return slices.Concat([]string{"up", "down", "DNS from the router", "ACKs up"}, rules, controlRules())
	}
}

// ItemNumber returns the number of our pipe or queue of this name: the first in
// its range that is not taken. dummynet identifies objects by number alone, and
// OPNsense silently saves two items with the same number.
func ItemNumber(kind, name string, taken func(n int) bool) int {
	names := ItemNames(kind)
	n := firstNumber + slices.Index(names, name)
	for taken(n) {
		n += len(names)
	}
	return n
}

// numbered returns the number of our pipe or queue if none is taken.
func numbered(kind, name string) string {
	return strconv.Itoa(ItemNumber(kind, name, func(int) bool { return false }))
}

// RenderItems makes the OPNsense items of a plan: a pipe, a queue and a rule
// for each direction; in the article's style also its third queue and its
// rules.
func RenderItems(p plan.Plan) (it Items, notes []string, err error) {
	for _, d := range []struct {
		name, direction string
		s               *plan.Shaper
	}{{"up", "out", p.Up}, {"down", "in", p.Down}} {
		if d.s == nil {
			continue
		}
		if shares := sharesOf(p, d.s); shares != nil {
			if err := it.addClasses(p, plan.Direction(d.name), *d.s, shares); err != nil {
				return Items{}, nil, fmt.Errorf("render %s: %w", d.name, err)
			}
			continue
		}
		pipe, more, err := pipeItem(d.name, *d.s)
		if err != nil {
			return Items{}, nil, fmt.Errorf("render %s: %w", d.name, err)
		}
		it.Pipes = append(it.Pipes, pipe)
		it.addQueue(d.name, pipe.UUID, "1")
		notes = append(notes, more...)
	}
	if err := it.addControl(p); err != nil {
		return Items{}, nil, fmt.Errorf("render %s: %w", controlName, err)
	}
	if asArticle(p) && p.Up != nil {
		it.addQueue("up, high priority", UUID("pipe up"), "10")
		it.addRule(p.WAN, "DNS from the router", 1, "udp", "out", "up, high priority")
		dns := &it.Rules[0]
		dns.Source, dns.DestPort = RouterAddress, "53"
		notes = append(notes,
			"replace "+RouterAddress+" by the router's own address on the WAN",
			"the article lists all upstream traffic before its ACKs; the first rule that matches wins, so the ACKs have the lower sequence here",
			"fq_codel does not look at the weights 1 and 10: it serves sparse flows, such as DNS and ACKs, first by itself")
	}
	if p.Classes != nil {
		return it, notes, nil
	}
	if p.Up != nil {
		it.addRule(p.WAN, "up", 3, "ip", "out", "up")
	}
	if asArticle(p) && p.Up != nil {
		it.addRule(p.WAN, "ACKs up", 2, "tcp_ack", "out", "up, high priority")
	}
	if p.Down != nil {
		it.addRule(p.WAN, "down", 4, "ip", "in", "down")
	}
	return it, notes, nil
}

// pipeItem makes one direction's pipe, with notes. The error names a value out
// of range.
func pipeItem(name string, s plan.Shaper) (PipeItem, []string, error) {
	var c Config
	if err := c.add(1, s); err != nil { // dnctl's limits apply too
		return PipeItem{}, nil, err
	}
	number, of := metric(s.Rate)
	p := PipeItem{
		UUID: UUID("pipe " + name), Number: numbered("pipe", name), Enabled: "1", Bandwidth: strconv.FormatInt(number, 10), BandwidthMetric: of,
		Mask: "none", CoDelEnable: "0", CoDelECN: "0", Description: "unbloat " + name,
	}
	if s.AQM == plan.FIFO {
		p.Scheduler, p.Queue = "fifo", orNone(s.Limit)
		return p, nil, nil
	}
	var notes []string
	p.Scheduler = "fq_codel"
	p.CoDelTarget, p.CoDelInterval = wholeMs(s.Target), wholeMs(s.Interval)
	if s.Target%time.Millisecond != 0 || s.Interval%time.Millisecond != 0 {
		notes = append(notes, name+": OPNsense takes whole milliseconds; target and interval are rounded up")
	}
	p.Quantum, p.Limit, p.Flows = orNone(int(s.Quantum)), orNone(s.Limit), orNone(min(s.Flows, maxItemNumber))
	if s.ECN {
		p.CoDelECN = "1"
	}
	return p, notes, nil
}

func wholeMs(d time.Duration) string {
	return orNone(int((d + time.Millisecond - 1) / time.Millisecond))
}

func orNone(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func (it *Items) addQueue(name, pipe, weight string) {
	it.Queues = append(it.Queues, QueueItem{UUID: UUID("queue " + name), Number: numbered("queue", name), Enabled: "1", Pipe: pipe, Weight: weight, Mask: "none", Description: "unbloat " + name})
}

func (it *Items) addRule(device, name string, sequence int, proto, direction, queue string) {
	it.Rules = append(it.Rules, RuleItem{
		UUID: UUID("rule " + name), Enabled: "1", Sequence: strconv.Itoa(sequence), Interface: device, Proto: proto,
		Source: "any", SourcePort: "any", Destination: "any", DestPort: "any",
		Direction: direction, Target: UUID("queue " + queue), Description: "unbloat " + name,
	})
}

// Shaper converts a pipe back to a shaper on device. The error names a value
// that is not a number.
func (p PipeItem) Shaper(device string) (plan.Shaper, error) {
	r, err := unit.ParseRate(p.Bandwidth + p.BandwidthMetric)
	if err != nil {
		return plan.Shaper{}, err
	}
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	s := plan.Shaper{Device: device, IngressOf: "", Rate: r, LinkLayer: plan.Ethernet}
	if p.Scheduler != "fq_codel" {
		s.AQM, s.Limit = plan.FIFO, number(p.Queue)
		return s, nil
	}
	s.AQM, s.ECN = plan.FQCoDel, p.CoDelECN == "1"
	s.Target = time.Duration(number(p.CoDelTarget)) * time.Millisecond
	s.Interval = time.Duration(number(p.CoDelInterval)) * time.Millisecond
	s.Quantum, s.Limit, s.Flows = unit.Size(number(p.Quantum)), number(p.Limit), number(p.Flows)
	return s, nil
}
