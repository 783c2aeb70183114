package dummynet

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/plan"
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
	Enabled     string `json:"enabled"`
	Pipe        string `json:"pipe"`   // the pipe's uuid
	Weight      string `json:"weight"` // 1…100
	Mask        string `json:"mask"`
	Description string `json:"description"`
	// Of a class: its own CoDel; "" is the model's default.
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
	DSCP        string `json:"dscp,omitempty"` // names, joined by commas
	Direction   string `json:"direction"`
	Target      string `json:"target"` // the queue's uuid
	Description string `json:"description"`
}

// RouterAddress stands for the router's own WAN address, which a plan does not know.
const RouterAddress = "ROUTER-ADDRESS"

// Most that OPNsense's model takes; the kernel then clamps to its own limits.
const maxItemNumber = 65535

// UUID returns the uuid of our own item of this name: always the same, so that
// setPipe/<uuid> changes what an earlier run made instead of adding another.
func UUID(name string) string {
	h := sha256.Sum256([]byte("unbloat " + name))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // RFC 9562 §5.8: version 8
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// RenderItems makes the OPNsense items of a plan: a pipe, a queue and a rule
// for each direction; in seed 000's style its third queue and its rules too.
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

// pipeItem makes one direction's pipe.
func pipeItem(name string, s plan.Shaper) (PipeItem, []string, error) {
	var c Config
	if err := c.add(1, s); err != nil { // the same limits as dnctl's
		return PipeItem{}, nil, err
	}
	number, of := metric(s.Rate)
	p := PipeItem{
		UUID: UUID("pipe " + name), Enabled: "1", Bandwidth: strconv.FormatInt(number, 10), BandwidthMetric: of,
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
	it.Queues = append(it.Queues, QueueItem{UUID: UUID("queue " + name), Enabled: "1", Pipe: pipe, Weight: weight, Mask: "none", Description: "unbloat " + name})
}

func (it *Items) addRule(device, name string, sequence int, proto, direction, queue string) {
	it.Rules = append(it.Rules, RuleItem{
		UUID: UUID("rule " + name), Enabled: "1", Sequence: strconv.Itoa(sequence), Interface: device, Proto: proto,
		Source: "any", SourcePort: "any", Destination: "any", DestPort: "any",
		Direction: direction, Target: UUID("queue " + queue), Description: "unbloat " + name,
	})
}

// Validate answers as OPNsense's controller does: a message for each field that
// it refuses, none if the pipe is saved.
func (p PipeItem) Validate() map[string]string {
	out := map[string]string{}
	of, known := map[string]unit.Rate{"bit": 1, "Kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9}[p.BandwidthMetric]
	n, err := strconv.ParseInt(p.Bandwidth, 10, 64)
	switch {
	case !known:
		out["pipe.bandwidthMetric"] = "Bandwidth metric should be either bit/s, kbit/s, Mbit/s or Gbit/s."
	case err != nil || n < 1:
		out["pipe.bandwidth"] = "Bandwidth out of range."
	default:
		if most := int64((MaxRate + 1) / of); n > most {
			unit := strings.Replace(p.BandwidthMetric, "K", "k", 1) + "/s"
			m := fmt.Sprintf("%d %s exceeds the maximum bandwidth of %d %s.", n, unit, most, unit)
			out["pipe.bandwidth"], out["pipe.bandwidthMetric"] = m, m
		}
	}
	within := func(field, value string, least, most int, message string) {
		if n, err := strconv.Atoi(value); value != "" && (err != nil || n < least || n > most) {
			out["pipe."+field] = message
		}
	}
	within("queue", p.Queue, MinSlots, MaxSlots, "Queue size should be between 2 and 100.")
	const invalid = "Invalid integer value."
	within("codel_target", p.CoDelTarget, 1, 10000, invalid)
	within("codel_interval", p.CoDelInterval, 1, 10000, invalid)
	within("fqcodel_quantum", p.Quantum, 1, maxItemNumber, invalid)
	within("fqcodel_limit", p.Limit, 1, maxItemNumber, invalid)
	within("fqcodel_flows", p.Flows, 1, maxItemNumber, invalid)
	if p.Description == "" {
		out["pipe.description"] = "A value is required."
	}
	return out
}

// Validate is PipeItem's for a queue; pipes are the uuids of those that exist.
func (q QueueItem) Validate(pipes []string) map[string]string {
	out := map[string]string{}
	if n, err := strconv.Atoi(q.Weight); err != nil || n < 1 || n > MaxWeight {
		out["queue.weight"] = "Weight must be between 1 and 100."
	}
	if !slices.Contains(pipes, q.Pipe) {
		out["queue.pipe"] = "Related pipe not found."
	}
	for field, v := range map[string]string{"codel_target": q.CoDelTarget, "codel_interval": q.CoDelInterval} {
		if n, err := strconv.Atoi(v); v != "" && (err != nil || n < 1 || n > 10000) {
			out["queue."+field] = "Invalid integer value."
		}
	}
	if q.Description == "" {
		out["queue.description"] = "A value is required."
	}
	return out
}

// Validate is PipeItem's for a rule; targets are the uuids of queues and pipes.
func (r RuleItem) Validate(targets []string) map[string]string {
	out := map[string]string{}
	const missing = "Option [] not in list."
	if n, err := strconv.Atoi(r.Sequence); err != nil || n < 1 || n > 1000000 {
		out["rule.sequence"] = "Provide a valid sequence for sorting."
	}
	if r.Interface != "wan" && r.Interface != "lan" && !strings.HasPrefix(r.Interface, "opt") {
		out["rule.interface"] = missing
	}
	if !slices.Contains([]string{"ip", "ip4", "ip6", "udp", "tcp", "tcp_ack", "tcp_ack_not", "icmp", "ipv6-icmp", "igmp", "esp", "ah", "gre"}, r.Proto) {
		out["rule.proto"] = missing
	}
	if !slices.Contains([]string{"", "in", "out"}, r.Direction) {
		out["rule.direction"] = missing
	}
	for field, v := range map[string]string{"src_port": r.SourcePort, "dst_port": r.DestPort} {
		if _, err := plan.ParsePortRange(v); err != nil && v != "any" && v != "" {
			out["rule."+field] = "Please specify a valid port number." // one, or one range
		}
	}
	for name := range strings.SplitSeq(r.DSCP, ",") {
		if name != "" && (unknownDSCP(name) || name == "va" || name == "cs0" || name[0] <= '9') {
			out["rule.dscp"] = "Option [" + name + "] not in list."
		}
	}
	if !slices.Contains(targets, r.Target) {
		out["rule.target"] = "Related pipe or queue not found."
	}
	return out
}

// Dnctl returns the line that OPNsense's template writes into dnctl.conf for
// the pipe of this number.
func (p PipeItem) Dnctl(number int) string {
	s := fmt.Sprintf("pipe %d config bw %s%s/s", number, p.Bandwidth, p.BandwidthMetric)
	if p.Queue != "" {
		s += " queue " + p.Queue
	}
	switch p.Scheduler {
	case "":
		return s
	case "fq_codel":
	default:
		return s + " type " + p.Scheduler
	}
	ecn := "noecn"
	if p.CoDelECN == "1" {
		ecn = "ecn"
	}
	s += " type fq_codel"
	for _, f := range []struct{ name, value string }{
		{"target", p.CoDelTarget}, {"interval", p.CoDelInterval}, {ecn, ""}, {"quantum", p.Quantum}, {"limit", p.Limit}, {"flows", p.Flows},
	} {
		if f.value != "" || f.name == ecn {
			s += strings.TrimRight(" "+f.name+" "+f.value, " ")
		}
	}
	return s
}

// Shaper reads a pipe back as the shaper it holds.
func (p PipeItem) Shaper(device string) (plan.Shaper, error) {
	if bad := p.Validate(); len(bad) > 0 {
		return plan.Shaper{}, fmt.Errorf("pipe %q: %v", p.Description, bad)
	}
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
