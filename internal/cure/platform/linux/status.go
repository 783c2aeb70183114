package linux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/unit"
)

// A Shaped device has a queue other than the kernel's default.
type Shaped = platform.Shaped

// Shapers implements platform.Backend. It lists all devices; the WAN is ignored.
func (b *Backend) Shapers(ctx context.Context, _ string) ([]Shaped, error) {
	return Shapers(ctx, b.Runner)
}

// Shapers reads all shapers on all devices from the kernel, ours and others.
func Shapers(ctx context.Context, r platform.Runner) ([]Shaped, error) {
	return ShapersOf(ctx, r, nil)
}

// An Owner is the program that made a shaper without our handles, from its own
// configuration.
type Owner struct {
	Name string // for people, as in "made by sqm-scripts"
	Ours bool   // unbloat wrote that configuration
}

// ShapersOf is Shapers with the known owners of some devices' shapers.
func ShapersOf(ctx context.Context, r platform.Runner, owners map[string]Owner) ([]Shaped, error) {
	links, err := readLinks(ctx, r)
	if err != nil {
		return nil, err
	}
	shapers := []Shaped{}
	unread := map[string]error{}
	for _, l := range links {
		s, err := shaperOf(ctx, r, l.Name, owners[l.Name])
		var failed *platform.CommandError
		switch {
		case errors.As(err, &failed) && ctx.Err() == nil && !errors.Is(err, platform.ErrUnreachable):
			unread[l.Name] = err
		case err != nil:
			return nil, err
		case s != nil:
			shapers = append(shapers, *s)
		}
	}
	if len(unread) == 0 {
		return shapers, nil
	}
	if links, err = readLinks(ctx, r); err != nil {
		return nil, err
	}
	for _, l := range links { // but for those that have gone meanwhile
		if err := unread[l.Name]; err != nil {
			shapers = append(shapers, Shaped{Device: l.Name, Says: fmt.Sprintf("what shapes %s is not known (%v)", l.Name, err), Counters: []tc.Counters{}})
		}
	}
	return shapers, nil
}

// shaperOf reads what shapes one device; nil if nothing does.
func shaperOf(ctx context.Context, r platform.Runner, dev string, owner Owner) (*Shaped, error) {
	tree, err := ReadTree(ctx, r, dev)
	if err != nil || tree.Empty() {
		return nil, err
	}
	s := describe(dev, tree, owner)
	if s.Queue == "" && s.OwnIngress && len(s.IngressTo) == 0 {
		return nil, nil // the classes' machines are numbered here, and nothing is shaped
	}
	s.Ours = s.Ours || owner.Ours
	out, err := platform.Output(ctx, r, "tc", "-s", "-d", "-j", "qdisc", "show", "dev", dev)
	if err != nil {
		return nil, toolError("read the counters of "+dev, "tc", "iproute2", err)
	}
	if s.Counters, err = tc.ParseCounters(out, dev); err != nil {
		return nil, fmt.Errorf("read the counters of %s: %w", dev, err)
	}
	return &s, nil
}

// describe explains a device's tree. An owner without a name is unknown; a tree
// with our handles is always ours.
func describe(dev string, t tc.Tree, owner Owner) Shaped {
	s := Shaped{Device: dev, Ours: t.OwnRoot(), Rate: unit.Rate(t.Rate()), Queue: t.Queue(), OwnIngress: t.OwnIngress()}
	whose := func(ours bool) string {
		if ours {
			return "unbloat's"
		}
		return cmp.Or(owner.Name, "not unbloat's")
	}
	switch {
	case s.Queue == "":
	case s.Rate > 0:
		s.Says = fmt.Sprintf("what leaves %s is held to %s by %s (%s)", dev, s.Rate.Short(), s.Queue, whose(s.Ours))
	default:
		s.Says = fmt.Sprintf("what leaves %s goes through %s, which holds no rate (%s)", dev, s.Queue, whose(s.Ours))
	}
	_, in := t.Split()
	if in.Empty() {
		return s
	}
	for _, f := range in.Filters {
		s.IngressTo = append(s.IngressTo, f.RedirectsTo()...)
	}
	if s.Says != "" {
		s.Says += "; "
	}
	if len(s.IngressTo) > 0 {
		s.Says += fmt.Sprintf("what arrives at %s goes through %s (%s)", dev, s.IngressTo[0], whose(s.OwnIngress))
	} else {
		s.Says += fmt.Sprintf("what arrives at %s meets %d filters of %s (%s)", dev, len(in.Filters), in.Qdiscs[0].Kind, whose(s.OwnIngress))
	}
	return s
}

// OwnedPlans finds our shapers without a journal, and returns for each WAN a
// plan with its devices, which is enough for a revert.
func OwnedPlans(ctx context.Context, r platform.Runner) ([]plan.Plan, error) {
	shapers, err := Shapers(ctx, r)
	if err != nil {
		return nil, err
	}
	var out []plan.Plan
	taken := []string{}
	for _, s := range shapers {
		if s.OwnIngress && len(s.IngressTo) == 1 {
			taken = append(taken, s.Device, s.IngressTo[0])
			out = append(out, plan.Plan{Schema: plan.Schema, WAN: s.Device,
				Up: &plan.Shaper{Device: s.Device}, Down: &plan.Shaper{Device: s.IngressTo[0], IngressOf: s.Device}})
		}
	}
	for _, s := range shapers {
		if s.Ours && !slices.Contains(taken, s.Device) {
			out = append(out, plan.Plan{Schema: plan.Schema, WAN: s.Device, Up: &plan.Shaper{Device: s.Device}})
		}
	}
	return out, nil
}

// Detect reads this router's capabilities for plan.Make. An empty wan means the
// device of the default route; an empty lan, on the router itself, the only other interface
// with a network. It changes nothing outside a scratch namespace.
func Detect(ctx context.Context, r platform.Runner, wan, lan string) (plan.Capabilities, error) {
	if wan == "" {
		var err error
		if wan, err = DefaultWAN(ctx, r); err != nil {
			return plan.Capabilities{}, err
		}
	}
	if wan == "lo" {
		return plan.Capabilities{}, loopback(ctx, r)
	}
	only := false
	if _, local := r.(platform.Local); local || lan != "" {
		lan, only = lanOf(ctx, r, wan, lan)
	}
	f := plan.Capabilities{Platform: Name, Language: Language(), WAN: wan, LAN: lan, OneLAN: only, IFB: true, Offloads: []plan.Offload{}}
	links, err := readLinks(ctx, r)
	if err != nil {
		return f, err
	}
	for _, l := range links {
		if l.Name == wan {
			f.MTU, f.PointToPoint = l.MTU, l.NoEthernet
			if _, err := ReadTree(ctx, r, wan); err != nil { // as where tc(8) is missing
				return f, err
			}
		}
	}
	have, err := Probe(ctx, r, []string{"cake", "htb", "fq_codel", "pfifo", "ingress", "mirred", "skbedit", "ctinfo"}, true)
	var missing *platform.MissingToolError
	switch {
	case errors.As(err, &missing): // a kernel that is not tried for want of a tool has no classes that it can't have
		f.Untried = err.Error()
		f.NoClasses, f.NoMarks = probeClasses(ctx, r, nil)
		f.NoBPF, f.SlowBPF = probeBPF(ctx, r).facts()
	case err != nil:
		f.Untried = err.Error()
	default:
		f.IFB = have["ifb"] && have["ingress"] && have["mirred"]
		f.AQMs = []plan.AQM{}
		if have["cake"] {
			f.AQMs = append(f.AQMs, plan.CAKE)
			f.NoRules = !have["skbedit"]
		}
		f.NoClasses, f.NoMarks = probeClasses(ctx, r, have)
		f.NoBPF, f.SlowBPF = probeBPF(ctx, r).facts()
		if have["htb"] && have["fq_codel"] {
			f.AQMs = append(f.AQMs, plan.FQCoDel)
		}
		if have["htb"] && have["pfifo"] {
			f.AQMs = append(f.AQMs, plan.FIFO)
		}
	}
	if f.OthersMarks, err = OthersMarks(ctx, r); err != nil {
		return f, err
	}
	if found, why := findResolver(ctx, r, wan); found != nil {
		f.Resolver = found.Path
	} else {
		f.NoResolver = why
	}
	for _, top := range []string{wan, lan} {
		for _, l := range tc.Stack(links, top) {
			out, err := platform.Output(ctx, r, "ethtool", "-k", l.Name)
			if err != nil {
				continue // without ethtool the plan has no offloads
			}
			for _, feature := range mergesBy(l, top, tc.SwitchableOffloads(tc.ParseFeatures(out))) {
				o := plan.Offload{Device: l.Name, Feature: feature}
				if l.Name != top {
					o.Below = top
				}
				f.Offloads = append(f.Offloads, o)
			}
		}
	}
	return f, nil
}
