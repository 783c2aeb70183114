package tc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// A ForeignError reports a qdisc in the plan's place that unbloat did not make.
type ForeignError struct {
	Device string
	What   string // "qdisc tbf 8003: at the root"
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("shape %s: %s is already there and was not made by unbloat; remove it, or take over with --replace (revert puts it back)", e.Device, e.What)
}

// Scope returns the devices that the plan touches, in the order of processing.
func Scope(p plan.Plan) []string {
	var out []string
	add := func(name string) {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, s := range []*plan.Shaper{p.Down, p.Up} {
		if s != nil {
			add(s.Device)
			add(s.IngressOf)
		}
	}
	add(p.WAN)
	if p.Classes.ByBPF() {
		add(p.Classes.LAN)
	}
	for _, o := range p.Offloads {
		add(o.Device)
	}
	return out
}

// Desire is DesireAfter with now as origin: no earlier plan has changed the
// router.
func Desire(p plan.Plan, now State, replace bool) (State, error) {
	return DesireAfter(p, now, State{}, replace)
}

// DesireAfter returns the state that the plan asks for, given the state now. It
// has the plan's shapers, none of our others, and the offloads that origin had,
// except those that the plan turns off; everything else stays. If a foreign
// shaper is in the way it returns a *ForeignError, unless replace is set.
func DesireAfter(p plan.Plan, now, origin State, replace bool) (State, error) {
	want := now.Clone()
	for i, d := range want.Devices {
		if d.Name == p.WAN { // it may be an ifb, but is none that we have made
			want.Devices[i] = withoutQueues(d)
		} else {
			want.Devices[i] = withoutOurs(d)
		}
		want.Devices[i].Steady = d.Flaps > 0
		for k, on := range origin.Device(d.Name).Features {
			if _, ok := want.Devices[i].Features[k]; ok {
				want.Devices[i].Features[k] = on
			}
		}
	}
	for _, s := range []*plan.Shaper{p.Up, p.Down} {
		if s == nil {
			continue
		}
		if err := want.shape(*s, p.Classes.Of(s == p.Down), p.Classes, now, replace); err != nil {
			return State{}, err
		}
	}
	for _, o := range p.Offloads {
		d := want.Device(o.Device)
		for _, leaf := range FeatureLeaves(o.Feature) {
			if _, ok := d.Features[leaf]; ok {
				d.Features[leaf] = false
			}
		}
	}
	return want, nil
}

// Baseline returns the state without unbloat: devices in origin as they were
// there, all others as they are now without our parts.
func Baseline(now, origin State) State {
	want := now.Clone()
	for i := range want.Devices {
		want.Devices[i] = withoutOurs(want.Devices[i])
	}
	for _, d := range origin.Devices {
		if root, in := d.Tree.Split(); in.numbers() { // another WAN's, as earlier versions saw it
			d.Tree = root
		}
		if now := want.Device(d.Name); d.Beneath && now.Exists {
			d.Tree, d.Beneath = now.Tree, now.Beneath
		}
		features := maps.Clone(want.Device(d.Name).Features) // features that origin did not record
		if features == nil {
			features = d.Features
		}
		maps.Copy(features, d.Features)
		d.Features = features
		want.set(d)
	}
	return want
}

// withoutOurs returns d without our qdiscs; our own ifb is marked as absent.
func withoutOurs(d Device) Device {
	if d.Tree.OwnRoot() && d.creatable() {
		return Device{Name: d.Name}
	}
	return withoutQueues(d)
}

// withoutQueues returns d without our qdiscs.
func withoutQueues(d Device) Device {
	root, in := d.Tree.Split()
	if d.Tree.OwnRoot() {
		root = Tree{}
	}
	if d.Tree.OwnIngress() {
		in = Tree{}
	}
	d.Tree, d.Shared = Join(root, in), false
	return d
}

// shape adds one shaper and its redirect to the wanted state. With a BPF program a
// filter of the shaper's own gives packets their classes.
func (want *State) shape(s plan.Shaper, shares []plan.Share, c *plan.Classes, now State, replace bool) error {
	own := c.ByBPF()
	d := want.Device(s.Device)
	root, in := d.Tree.Split()
	if q, ok := root.Root(); ok && !replace && !root.idle() {
		return &ForeignError{Device: s.Device, What: fmt.Sprintf("qdisc %s %s at the root", q.Kind, q.Handle)}
	}
	if s.IngressOf != "" {
		d.Exists, d.Kind, d.Up = true, "ifb", true
	}
	tree, err := shaperTree(s, shares, own, d.MTU)
	if err != nil {
		return err
	}
	d.Tree = Join(tree, in)
	want.set(d)
	if s.IngressOf == "" {
		return nil
	}
	from := want.Device(s.IngressOf)
	root, in = from.Tree.Split()
	if !in.Empty() && !replace {
		return &ForeignError{Device: s.IngressOf, What: fmt.Sprintf("qdisc %s ffff: with %d filters on ingress", in.Qdiscs[0].Kind, len(in.Filters))}
	}
	actions := unmarked(s, shares)
	if own {
		actions = nil
	}
	from.Tree = Join(root, redirectTree(s.Device, actions))
	want.set(from)
	return nil
}

// shaperTree returns the tree of one shaper: CAKE alone, or an HTB class with a
// queue below it.
func shaperTree(s plan.Shaper, shares []plan.Share, own bool, mtu int) (Tree, error) {
	switch {
	case s.AQM == plan.CAKE && shares != nil && own:
		return Tree{Qdiscs: []Qdisc{{Kind: "cake", Handle: OurRoot, Parent: rootAt, Options: cakeOptions(s)}}}, nil
	case s.AQM == plan.CAKE && shares != nil:
		return cakeClasses(s), nil
	case s.AQM == plan.CAKE:
		return Tree{
			Qdiscs:  []Qdisc{{Kind: "cake", Handle: OurRoot, Parent: rootAt, Options: cakeOptions(s)}},
			Filters: ruleFilters(s.PacketRules),
		}, nil
	case s.AQM == plan.FQCoDel && shares != nil:
		return htbClasses(s, shares, own, mtu), nil
	}
	leaf := Qdisc{Handle: OurLeaf, Parent: leafClass}
	switch s.AQM {
	case plan.FQCoDel:
		leaf.Kind, leaf.Options = "fq_codel", fqCodelOptions(s, mtu)
	case plan.FIFO:
		// A bfifo counts bytes, so small packets still fit when full ones are
		// queued. A pfifo of nine packets would drop a call's small packets
		// behind nine full ones.
		full := cmp.Or(mtu, 1500) + s.HeaderLen
		leaf.Kind, leaf.Options = "bfifo", Options{"limit": num(cmp.Or(s.Limit, 1000) * full)}
	default:
		return Tree{}, fmt.Errorf("shape %s: tc(8) has no queue named %q; use cake, fq_codel or fifo", s.Device, s.AQM)
	}
	class := classOptions(s)
	return Tree{
		Qdiscs: []Qdisc{
			{Kind: "htb", Handle: OurRoot, Parent: rootAt, Stab: stab(s), Options: Options{
				"default": {Kernel: "0x10"}, "direct_qlen": num(1000)}},
			leaf,
		},
		Classes: []Class{
			{Kind: "htb", ID: rootClass, Parent: OurRoot, Inner: true, Options: class},
			{Kind: "htb", ID: leafClass, Parent: rootClass, Options: class},
		},
	}, nil
}

// redirectTree returns the ingress qdisc that redirects every packet to ifb,
// after the actions that set its class. It uses u32: matchall is a kernel
// module of its own and may be missing.
func redirectTree(ifb string, actions []string) Tree {
	args := append([]string{"classid", rootClass, "match", "u32", "0x0", "0x0", "at", "0"}, actions...)
	args = append(args, "action", "mirred", "egress", "redirect", "dev", ifb)
	return Tree{
		Qdiscs:  []Qdisc{{Kind: "ingress", Handle: "ffff:", Parent: ingressAt}},
		Filters: []Filter{{Kind: "u32", Parent: ingressAt, At: "ffff:", Protocol: "all", Pref: OurPref, Handle: "800::800", Args: args}},
	}
}

func cakeOptions(s plan.Shaper) Options {
	o := Options{
		"bandwidth": num(s.Rate - s.Rate%8), // the kernel holds bytes/s
		"diffserv":  {Kernel: cmp.Or(s.Tins, "diffserv3")},
		"flowmode":  {Kernel: cmp.Or(s.Isolation, "triple-isolate")},
		"nat":       bit(s.NAT), "wash": bit(s.Wash), "ingress": bit(s.Ingress),
	}
	if s.AckFilter {
		o["ack-filter"] = Value{Kernel: "enabled"}
	}
	if s.Interval > 0 {
		o["rtt"] = num(s.Interval / time.Microsecond)
	}
	atm := map[plan.LinkLayer]string{plan.ATM: "atm", plan.PTM: "ptm"}[s.LinkLayer]
	if s.Overhead == s.HeaderLen && s.MPU == 0 && atm == "" {
		o["raw"] = bit(true) // the kernel's packet length is right
		return o
	}
	o["overhead"], o["mpu"], o["atm"] = num(s.Overhead), num(s.MPU), Value{Kernel: cmp.Or(atm, "noatm")}
	return o
}

func fqCodelOptions(s plan.Shaper, mtu int) Options {
	o := Options{
		"limit":   num(cmp.Or(s.Limit, 10240)),
		"flows":   num(cmp.Or(s.Flows, 1024)),
		"quantum": num(cmp.Or(int(s.Quantum), cmp.Or(mtu, 1500)+s.HeaderLen)),
		"ecn":     bit(s.ECN),
	}
	codel := func(name string, d time.Duration) {
		if us := int64(d / time.Microsecond); us > 0 {
			o[name] = Value{Kernel: strconv.FormatInt(codelKernel(us), 10), Arg: strconv.FormatInt(us, 10) + "us"}
		}
	}
	codel("target", s.Target)
	codel("interval", s.Interval)
	return o
}

func classOptions(s plan.Shaper) Options {
	return classBetween(s, s.Rate, s.Rate)
}

// classBetween returns the options of an HTB class: rate is least, ceil is
// most.
func classBetween(s plan.Shaper, least, most unit.Rate) Options {
	asked := int64(cmp.Or(int(s.Burst), 1590))
	bucket := func(r unit.Rate) Value {
		burst := shownBurst(int64(r)/8, asked)
		old, newer := bucketShown(int64(r)/8, burst)
		return Value{Kernel: strconv.FormatInt(old, 10), AltKernel: strconv.FormatInt(newer, 10), Arg: strconv.FormatInt(burst, 10)}
	}
	least, most = ShownRate(least), ShownRate(most)
	return Options{
		"rate": num(least), "ceil": num(most), "burst": bucket(least), "cburst": bucket(most),
		"quantum": num(cmp.Or(int(s.ClassQ), int(asked))),
	}
}

// stab returns the size table of a shaper without overhead options of its own;
// nil if the kernel's packet length is right.
func stab(s plan.Shaper) Options {
	layer := "ethernet"
	if s.LinkLayer == plan.ATM {
		layer = "atm"
	}
	if s.StabOverhead() == 0 && s.MPU == 0 && layer == "ethernet" {
		return nil
	}
	return Options{"overhead": num(s.StabOverhead()), "mpu": num(s.MPU), "linklayer": {Kernel: layer}}
}

// ShownRate rounds an HTB rate down to what tc(8)'s text output shows of it:
// whole bytes/s below 1 Mbit/s, kbit/s below 1 Gbit/s, Mbit/s above. Older
// iproute2 has no JSON for HTB classes, and a rate that can't be read back
// exactly can't be verified.
func ShownRate(r unit.Rate) unit.Rate {
	switch {
	case r >= unit.GbitPerSecond:
		return r - r%unit.MbitPerSecond
	case r >= unit.MbitPerSecond:
		return r - r%unit.KbitPerSecond
	default:
		return r - r%8
	}
}

// num formats a 64-bit number: a rate in bit/s may not fit into int on 32-bit
// routers.
func num[T ~int | ~int64](n T) Value { return Value{Kernel: strconv.FormatInt(int64(n), 10)} }

func bit(b bool) Value {
	if b {
		return Value{Kernel: "1"}
	}
	return Value{Kernel: "0"}
}

// AtRate returns the state in which our CAKE on the shaper's device has the shaper's
// rate; ok is false if there is none.
func (s State) AtRate(x plan.Shaper) (out State, ok bool) {
	d := s.Device(x.Device)
	i := slices.IndexFunc(d.Tree.Qdiscs, func(q Qdisc) bool { return q.Parent == rootAt && q.Handle == OurRoot && q.Kind == "cake" })
	if i < 0 {
		return s, false
	}
	out, d.Tree.Qdiscs = s.Clone(), slices.Clone(d.Tree.Qdiscs)
	cake := &d.Tree.Qdiscs[i]
	cake.Options = maps.Clone(cake.Options)
	cake.Options["bandwidth"] = cakeOptions(x)["bandwidth"]
	out.set(d)
	return out, true
}
