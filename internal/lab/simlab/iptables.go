package simlab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/aqm"
	"unbloat/internal/classify"
	"unbloat/internal/plan"
	"unbloat/internal/platform/all"
	clearosfake "unbloat/internal/platform/clearos/fake"
	"unbloat/internal/platform/fake/iptables"
	"unbloat/sim"
	"unbloat/unit"
)

// A tcKernel is a Linux router whose classes are by iptables: the trees of HTB that
// the commands of a plan make, by device, and the rules that give packets their class.
// It knows what such plans write, and refuses the rest.
type tcKernel struct {
	trees  map[string]*tcTree
	table  *iptables.Table
	states *states
}

// A tcTree is a device's HTB.
type tcTree struct {
	root     string // handle, as in "b10a:"
	unmarked string // the class of packets that no rule gives one
	framing  aqm.Framing
	classes  []tcClass
}

type tcClass struct {
	id, parent string
	params     aqm.ClassParams
	leaf       *aqm.FQCoDelParams
}

// byRules returns how a plan's classes work that iptables gives; nil if it does not.
func (h *house) byRules(p plan.Plan) (*tcKernel, error) {
	d, err := all.Find(p.Platform)
	if err != nil || !d.Language.ClassesHashed || !p.ByBehaviour() {
		return nil, nil
	}
	parts, _, err := d.Render(p)
	if err != nil {
		return nil, err
	}
	k := &tcKernel{trees: map[string]*tcTree{}, table: iptables.New(), states: newStates()}
	for _, part := range parts {
		if !strings.Contains(part.Text, "function RunBandwidthExternal") { // the settings that name the engine
			continue
		}
		ran, err := clearosfake.Other(part.Text)
		if err != nil {
			return nil, err
		}
		for _, line := range ran.Commands {
			if err := k.run(line, kernelOf(p.Platform).CoDel); err != nil {
				return nil, err
			}
		}
	}
	return k, nil
}

// run runs one command.
func (k *tcKernel) run(line string, dialect aqm.Dialect) error {
	w := strings.Fields(line)
	switch {
	case strings.HasSuffix(line, " 2>/dev/null"): // removes what an earlier run made
		return nil
	case w[0] == "ethtool" || w[0] == "ip": // offloads, and the ifb
		return nil
	case strings.HasPrefix(line, "iptables -t mangle "):
		return k.table.Command(w[3:])
	case strings.HasPrefix(line, "tc qdisc add dev ") && len(w) > 5 && w[5] == "root":
		return k.htb(w[4], w[6:])
	case strings.HasPrefix(line, "tc class add dev ") && len(w) > 5:
		return k.class(w[4], w[5:])
	case strings.HasPrefix(line, "tc qdisc add dev ") && len(w) > 5 && w[5] == "parent":
		return k.leaf(w[4], w[6:], dialect)
	case strings.HasPrefix(line, "tc qdisc add dev ") && strings.HasSuffix(line, " ingress"), strings.HasPrefix(line, "tc filter add dev ") && strings.Contains(line, " mirred "):
		return nil // to the ifb
	}
	return fmt.Errorf("the simulated router does not know %q", line)
}

// words reads NAME VALUE …, and names that stand alone.
func words(w []string, valued, alone []string) (map[string]string, error) {
	out := map[string]string{}
	for i := 0; i < len(w); i++ {
		switch {
		case slices.Contains(alone, w[i]):
			out[w[i]] = "yes"
		case slices.Contains(valued, w[i]) && i+1 < len(w):
			out[w[i]] = w[i+1]
			i++
		default:
			return nil, fmt.Errorf("the simulated router's tc does not know %q in %q", w[i], strings.Join(w, " "))
		}
	}
	return out, nil
}

// htb makes a device's root.
func (k *tcKernel) htb(device string, w []string) error {
	o, err := words(w, []string{"handle", "mtu", "tsize", "mpu", "overhead", "linklayer", "default", "direct_qlen"}, []string{"stab", "htb"})
	if err != nil {
		return err
	}
	if o["htb"] == "" || o["linklayer"] != "" && o["linklayer"] != "ethernet" {
		return fmt.Errorf("the simulated router has no %q at the root of %s", strings.Join(w, " "), device)
	}
	header := unit.Size(plan.EthernetHeader)
	if strings.HasPrefix(device, "ppp") {
		header = 0 // packets have none there
	}
	number := func(name string) unit.Size { n, _ := strconv.Atoi(o[name]); return unit.Size(n) }
	k.trees[device] = &tcTree{root: o["handle"], unmarked: o["handle"] + o["default"],
		framing: aqm.Framing{Replaced: plan.EthernetHeader, Overhead: header + number("overhead"), Minimum: number("mpu")}}
	return nil
}

// class makes a class.
func (k *tcKernel) class(device string, w []string) error {
	o, err := words(w, []string{"parent", "classid", "prio", "quantum", "rate", "ceil", "burst", "cburst"}, []string{"htb"})
	t := k.trees[device]
	if err != nil {
		return err
	}
	if t == nil {
		return fmt.Errorf("%s has no htb for class %s", device, o["classid"])
	}
	c := tcClass{id: o["classid"], parent: o["parent"], params: aqm.ClassParams{Parent: -1}}
	if c.parent != t.root {
		c.params.Parent = slices.IndexFunc(t.classes, func(x tcClass) bool { return x.id == c.parent })
		if c.params.Parent < 0 {
			return fmt.Errorf("%s has no class %s", device, c.parent)
		}
	}
	var errs [5]error
	var burst, cburst int
	c.params.Rate, errs[0] = unit.ParseRate(o["rate"])
	c.params.Ceil, errs[1] = unit.ParseRate(o["ceil"])
	burst, errs[2] = strconv.Atoi(o["burst"])
	cburst, errs[3] = strconv.Atoi(o["cburst"])
	c.params.Prio, errs[4] = strconv.Atoi(o["prio"])
	for _, e := range errs {
		if e != nil {
			return fmt.Errorf("class %s of %s: %w", c.id, device, e)
		}
	}
	c.params.Burst, c.params.CBurst = unit.Size(burst), unit.Size(cburst)
	t.classes = append(t.classes, c)
	return nil
}

// leaf gives a class its queue.
func (k *tcKernel) leaf(device string, w []string, dialect aqm.Dialect) error {
	o, err := words(w[1:], []string{"handle", "limit", "target", "interval", "flows", "quantum"}, []string{"fq_codel", "ecn", "noecn"})
	if err != nil {
		return err
	}
	t := k.trees[device]
	at := -1
	if t != nil {
		at = slices.IndexFunc(t.classes, func(x tcClass) bool { return x.id == w[0] })
	}
	if at < 0 || o["fq_codel"] == "" {
		return fmt.Errorf("%s has no class %s for %q", device, w[0], strings.Join(w, " "))
	}
	p := aqm.DefaultFQCoDel(dialect)
	p.CoDel.ECN = o["ecn"] != ""
	for name, to := range map[string]*time.Duration{"target": &p.CoDel.Target, "interval": &p.CoDel.Interval} {
		if o[name] == "" {
			continue
		}
		if *to, err = time.ParseDuration(o[name]); err != nil {
			return err
		}
	}
	quantum := int(p.Quantum)
	for name, to := range map[string]*int{"limit": &p.CoDel.Packets, "flows": &p.Flows, "quantum": &quantum} {
		if o[name] == "" {
			continue
		}
		if *to, err = strconv.Atoi(o[name]); err != nil {
			return err
		}
	}
	p.Quantum = unit.Size(quantum)
	t.classes[at].leaf = &p
	return nil
}

// shaping returns what a device does to the packets of a direction. What an ifb gets
// has not met the rules.
func (k *tcKernel) shaping(d sim.Direction, p plan.Plan) (sim.Shaping, error) {
	s := p.Up
	if d == sim.Down {
		s = p.Down
	}
	if s == nil {
		return sim.Shaping{}, nil
	}
	t := k.trees[s.Device]
	if t == nil {
		return sim.Shaping{}, fmt.Errorf("simulate %s: no command shapes it", s.Device)
	}
	place := map[string]int{}
	for i, c := range t.classes {
		if c.leaf != nil {
			place[c.id] = i
		}
	}
	rest, ok := place[t.unmarked]
	if !ok {
		return sim.Shaping{}, fmt.Errorf("simulate %s: its default class %s has no queue", s.Device, t.unmarked)
	}
	return sim.Shaping{
		Mark: func(now unit.Instant, seen sim.Seen) uint8 {
			class := k.classOf(now, d, seen, p)
			if i, is := place[class]; is && s.IngressOf == "" {
				return uint8(i)
			}
			return uint8(rest)
		},
		Queue: func(drop aqm.DropFunc) (aqm.Queue, error) {
			c := aqm.ClassfulParams{Framing: t.framing, Of: func(p aqm.Packet) int { return int(p.DSCP) }}
			for _, x := range t.classes {
				params := x.params
				if x.leaf != nil {
					leaf := *x.leaf
					leaf.CoDel.Drop = drop
					q, err := aqm.NewFQCoDel(leaf)
					if err != nil {
						return nil, err
					}
					params.Queue = q
				}
				c.Classes = append(c.Classes, params)
			}
			return aqm.NewClassful(c)
		},
	}, nil
}

// classOf walks a packet through the rules, as it leaves by its device.
func (k *tcKernel) classOf(now unit.Instant, d sim.Direction, seen sim.Seen, p plan.Plan) string {
	x := k.states.count(now, d, seen)
	packet := iptables.Packet{In: p.LAN, Out: p.WAN, Protocol: x.protocol, Source: x.home, Destination: x.far, Length: int(seen.Size - plan.EthernetHeader)}
	if d == sim.Down {
		packet.In, packet.Out, packet.Source, packet.Destination = p.WAN, p.LAN, x.far, x.home
	}
	if x.protocol == classify.TCP {
		packet.Flags = classify.ACK
		if !seen.Ack {
			packet.Flags |= classify.PSH
		}
	}
	c := iptables.Connection{Packets: x.packets[0] + x.packets[1], Bytes: x.bytes[0] + x.bytes[1], Replied: x.packets[1-x.opened] > 0, Mark: x.mark}
	out := k.table.Walk(time.Duration(now), "POSTROUTING", &packet, &c)
	x.mark = c.Mark
	return out.Class
}
