package simlab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/aqm"
	"unbloat/internal/classify"
	"unbloat/sim"
	"unbloat/unit"
)

// An ipfwKernel carries out commands of dnctl(8) and ipfw(8), as a plan for dummynet
// writes them: pipes with queues that share them by weight, the rules that say which
// queue a packet goes to, and the table that they look flows up in. It knows what
// plans write, and refuses the rest.
type ipfwKernel struct {
	pipes  map[int]unit.Rate
	wf2q   map[int]bool // by scheduler
	queues []ipfwQueue
	tables map[string]map[string]int // nil: there is no such table
	rules  []ipfwRule
}

type ipfwQueue struct {
	number, sched, weight, slots int
	target, interval             time.Duration
	ecn                          bool
}

// An ipfwRule sends packets to a queue, or past all queues through a pipe. A pipe
// without queues is not simulated: its packets take the first queue, that of voice.
type ipfwRule struct {
	number, queue    int    // queue 0: the one that the table says, or a pipe
	pipe             bool   // which takes packets of both directions
	proto            string // ip: any
	fromPort, toPort []classify.PortRange
	out              bool // of packets that leave by the WAN; otherwise that enter it
	ack              bool // TCP with ACK
	lengths          []classify.PortRange
	table            string // that holds the flow; "": any
	text             string // as `ipfw list` prints it
}

// An ipfwPacket is what a rule sees of one.
type ipfwPacket struct {
	out      bool
	protocol uint8
	from, to netip.AddrPort
	length   unit.Size // of the IP packet
}

func newIPFW() *ipfwKernel {
	return &ipfwKernel{pipes: map[int]unit.Rate{}, wf2q: map[int]bool{}, tables: map[string]map[string]int{}}
}

// load runs a text of commands. Lines of other programs are left out.
func (k *ipfwKernel) load(text string) error {
	for line := range strings.Lines(text) {
		if w := strings.Fields(line); len(w) > 1 && (w[0] == "dnctl" || w[0] == "ipfw") && w[len(w)-1] != "show" {
			if _, err := k.run(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// run runs one command.
func (k *ipfwKernel) run(argv []string) (output string, err error) {
	w := argv[1:]
	if len(w) > 0 && w[0] == "-q" {
		w = w[1:]
	}
	unknown := fmt.Errorf("the simulator's dummynet does not know %q", strings.Join(argv, " "))
	if len(w) == 1 && argv[0] == "ipfw" && w[0] == "list" {
		var b strings.Builder
		for _, r := range k.rules {
			b.WriteString(r.text + "\n")
		}
		return b.String(), nil
	}
	if len(w) < 3 {
		return "", unknown
	}
	switch {
	case argv[0] == "ipfw" && w[0] == "table":
		return k.tableCommand(w[1], w[2], w[3:])
	case argv[0] == "ipfw" && w[0] == "add":
		r, ok := readIPFWRule(w[1:])
		if !ok {
			return "", unknown
		}
		k.rules = append(k.rules, r)
		slices.SortStableFunc(k.rules, func(a, b ipfwRule) int { return a.number - b.number })
		return "", nil
	case len(w) < 4 || w[2] != "config":
		return "", unknown
	}
	n, err := strconv.Atoi(w[1])
	if err != nil {
		return "", unknown
	}
	o := map[string]string{}
	for i := 3; i < len(w); i++ {
		switch {
		case slices.Contains([]string{"codel", "ecn", "noecn"}, w[i]):
			o[w[i]] = "yes"
		case i+1 < len(w) && slices.Contains([]string{"bw", "pipe", "type", "sched", "weight", "queue", "target", "interval"}, w[i]):
			o[w[i]] = w[i+1]
			i++
		default:
			return "", unknown
		}
	}
	switch w[0] {
	case "pipe":
		k.pipes[n], err = unit.ParseRate(o["bw"])
		if o["type"] != "" { // OPNsense names the scheduler with the pipe
			k.wf2q[n] = o["type"] == "wf2q+"
		}
	case "sched":
		k.wf2q[n] = o["type"] == "wf2q+" && o["pipe"] == w[1]
	case "queue":
		q := ipfwQueue{number: n, ecn: o["ecn"] != ""}
		var errs [5]error
		q.sched, errs[0] = strconv.Atoi(cmp.Or(o["sched"], o["pipe"]))
		q.weight, errs[1] = strconv.Atoi(o["weight"])
		q.slots, errs[2] = strconv.Atoi(cmp.Or(o["queue"], "50"))
		q.target, errs[3] = ipfwSpan(o["target"])
		q.interval, errs[4] = ipfwSpan(o["interval"])
		for _, e := range errs {
			if e != nil {
				return "", unknown
			}
		}
		k.queues = append(k.queues, q)
	default:
		return "", unknown
	}
	return "", err
}

// ipfwSpan reads a time, which is in ms if it has no unit.
func ipfwSpan(s string) (time.Duration, error) {
	if strings.HasSuffix(s, "s") {
		return time.ParseDuration(s)
	}
	return time.ParseDuration(s + "ms")
}

// tableCommand runs `ipfw table NAME …`.
func (k *ipfwKernel) tableCommand(name, verb string, w []string) (output string, err error) {
	t := k.tables[name]
	if t == nil && verb != "create" {
		return "", fmt.Errorf("ipfw: Table %s does not exist", name)
	}
	switch verb {
	case "create":
		if strings.Join(w, " ") != "type flow:src-ip,proto,src-port,dst-ip,dst-port missing" {
			return "", fmt.Errorf("the simulator's dummynet knows no table of %q", strings.Join(w, " "))
		}
		if t == nil {
			k.tables[name] = map[string]int{}
		}
	case "add":
		for pair := range slices.Chunk(w, 2) {
			n, err := strconv.Atoi(pair[len(pair)-1])
			if err != nil || len(pair) != 2 {
				return "", fmt.Errorf("ipfw: Unable to parse value %s", pair[len(pair)-1])
			}
			t[pair[0]] = n
		}
	case "delete":
		for _, key := range w {
			delete(t, key)
		}
	case "list":
		var b strings.Builder
		for key, n := range t {
			fmt.Fprintf(&b, "%s %d\n", key, n)
		}
		return b.String(), nil
	default:
		return "", fmt.Errorf("the simulator's dummynet does not know `ipfw table %s %s`", name, verb)
	}
	return "", nil
}

// readIPFWRule reads `NUMBER queue|pipe N PROTO from any [PORTS] to any …`.
func readIPFWRule(w []string) (r ipfwRule, ok bool) {
	if len(w) < 8 || w[1] != "queue" && w[1] != "pipe" {
		return r, false
	}
	r.pipe = w[1] == "pipe"
	var err error
	r.text = strings.Join(w, " ")
	if r.number, err = strconv.Atoi(w[0]); err != nil {
		return r, false
	}
	if w[2] != "tablearg" && !r.pipe {
		if r.queue, err = strconv.Atoi(w[2]); err != nil || r.queue == 0 {
			return r, false
		}
	}
	r.proto, w = w[3], w[4:]
	ports := func(list string) (out []classify.PortRange, ok bool) {
		for s := range strings.SplitSeq(list, ",") {
			p, err := classify.ParsePortRange(s)
			if err != nil {
				return nil, false
			}
			out = append(out, p)
		}
		return out, true
	}
	next := func() string {
		if len(w) == 0 {
			return ""
		}
		s := w[0]
		w = w[1:]
		return s
	}
	if next() != "from" || next() != "any" { // no load of the simulator has addresses that a rule could name
		return r, false
	}
	if len(w) > 0 && w[0] != "to" {
		if r.fromPort, ok = ports(next()); !ok {
			return r, false
		}
	}
	if next() != "to" || next() != "any" {
		return r, false
	}
	way := false
	for len(w) > 0 {
		switch word := next(); {
		case (word == "dst-port" || word == "src-port") && len(w) > 0 && w[0] == "any":
			next()
		case word == "dst-port":
			if r.toPort, ok = ports(next()); !ok {
				return r, false
			}
		case word == "src-port":
			if r.fromPort, ok = ports(next()); !ok {
				return r, false
			}
		case word == "in" || word == "out":
			r.out, way = word == "out", true
		case word == "xmit" || word == "recv" || word == "via":
			next() // the WAN: the rules have no other
		case word == "tcpflags":
			if r.ack = next() == "ack"; !r.ack {
				return r, false
			}
		case word == "iplen":
			from, to, _ := strings.Cut(next(), "-")
			a, errA := strconv.ParseUint(from, 10, 16)
			b, errB := strconv.ParseUint(to, 10, 16)
			if errA != nil || errB != nil {
				return r, false
			}
			r.lengths = []classify.PortRange{{From: uint16(a), To: uint16(b)}}
		case word == "flow":
			name := next()
			if !strings.HasPrefix(name, "table(") || !strings.HasSuffix(name, ")") {
				return r, false
			}
			r.table = name[len("table(") : len(name)-1]
		case word == "//": // OPNsense's comment
			w = nil
		default:
			return r, false
		}
	}
	return r, way != r.pipe && (r.queue != 0 || r.pipe) == (r.table == "")
}

// queueOf returns the queue that a packet goes to: that of the first rule that fits;
// 0: none does.
func (k *ipfwKernel) queueOf(p ipfwPacket) int {
	within := func(list []classify.PortRange, n uint16) bool {
		return list == nil || slices.ContainsFunc(list, func(r classify.PortRange) bool { return r.Contains(n) })
	}
	for i := range k.rules {
		r := &k.rules[i]
		if r.out != p.out && !r.pipe || r.proto != "ip" && classify.Number(r.proto) != p.protocol || r.ack && p.protocol != classify.TCP ||
			!within(r.lengths, uint16(p.length)) || !within(r.fromPort, p.from.Port()) || !within(r.toPort, p.to.Port()) {
			continue
		}
		if r.table == "" {
			return r.queue
		}
		if queue, ok := k.tables[r.table][fmt.Sprintf("%s,%d,%d,%s,%d", p.from.Addr(), p.protocol, p.from.Port(), p.to.Addr(), p.to.Port())]; ok {
			return queue
		}
	}
	return 0
}

// shaping returns what a direction's pipe does, or nothing if no rule leads to one.
// mark gives each packet the place of its queue.
func (k *ipfwKernel) shaping(out bool, dialect aqm.Dialect, see func(sim.Seen) ipfwPacket) (sim.Shaping, error) {
	var queues []ipfwQueue
	pipe := 0
	for _, r := range k.rules {
		i := slices.IndexFunc(k.queues, func(q ipfwQueue) bool { return q.number == r.queue })
		if r.out == out && i >= 0 {
			pipe = k.queues[i].sched
		}
	}
	for _, q := range k.queues {
		if q.sched == pipe {
			queues = append(queues, q)
		}
	}
	rate, ok := k.pipes[pipe]
	if !ok || !k.wf2q[pipe] || len(queues) == 0 {
		return sim.Shaping{}, fmt.Errorf("simulate dummynet: no rule leads to a pipe with WF2Q+")
	}
	return sim.Shaping{
		Mark: func(_ unit.Instant, p sim.Seen) uint8 {
			n := k.queueOf(see(p))
			return uint8(max(slices.IndexFunc(queues, func(q ipfwQueue) bool { return q.number == n }), 0))
		},
		Queue: func(drop aqm.DropFunc) (aqm.Queue, error) {
			p := aqm.WeightedParams{Of: func(p aqm.Packet) int { return int(p.DSCP) }}
			for _, q := range queues {
				c := aqm.DefaultCoDel(dialect)
				c.Target, c.Interval, c.ECN, c.Packets, c.Drop = q.target, q.interval, q.ecn, q.slots, drop
				inner, err := aqm.NewCoDel(c)
				if err != nil {
					return nil, err
				}
				p.Queues, p.Weights = append(p.Queues, inner), append(p.Weights, q.weight)
			}
			inner, err := aqm.NewWeighted(p)
			if err != nil {
				return nil, err
			}
			return aqm.NewTokenBucket(aqm.TokenBucketParams{Bucket: aqm.TBF, Rate: rate, Burst: fullFrame, Framing: aqm.Framing{Replaced: 14}}, inner)
		},
	}, nil
}
