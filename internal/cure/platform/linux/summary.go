package linux

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
	"unbloat/unit"
)

// A Held is a shaper on one direction of one device.
type Held struct {
	Device string
	Enters bool      // ingress, by way of an ifb; otherwise egress
	Queue  string    // "cake", "htb + fq_codel"
	Rate   unit.Rate // 0: unknown
	Own    bool      // it has unbloat's handles
	IFB    string    // the ifb of ingress
	Astray bool      // the ifb is gone, so all ingress packets are lost
}

// String returns a one-line description.
func (h Held) String() string {
	if h.Astray {
		return fmt.Sprintf("what enters %s is redirected to %s, which is gone", h.Device, h.IFB)
	}
	verb := "leaves"
	if h.Enters {
		verb = "enters"
	}
	return fmt.Sprintf("what %s %s is held to %d bit/s by %s", verb, h.Device, int64(h.Rate), h.Queue)
}

// Fact returns the Held as platforms with configuration files record it.
func (h Held) Fact() conf.Fact {
	kind := conf.Leaves
	switch {
	case h.Astray:
		kind = conf.Astray
	case h.Enters:
		kind = conf.Enters
	}
	return conf.Fact{Kind: kind, Of: h.Device, Text: h.String()}
}

// HeldBy reads all shapers of the devices, ours and others. Devices that don't
// exist have none.
func HeldBy(ctx context.Context, r platform.Runner, devices ...string) ([]Held, error) {
	links, err := readLinks(ctx, r)
	if err != nil {
		return nil, err
	}
	var held []Held
	there := func(dev string) bool {
		return slices.ContainsFunc(links, func(l tc.Link) bool { return l.Name == dev })
	}
	for _, dev := range devices {
		if !there(dev) {
			continue
		}
		t, err := ReadTree(ctx, r, dev)
		if err != nil {
			return nil, err
		}
		if _, ok := t.Root(); ok {
			held = append(held, Held{Device: dev, Queue: t.Queue(), Rate: unit.Rate(t.Rate()), Own: t.OwnRoot()})
		}
		_, in := t.Split()
		for _, f := range in.Filters {
			for _, ifb := range f.RedirectsTo() {
				if !there(ifb) { // the ifb was deleted, but the redirect remains
					held = append(held, Held{Device: dev, Enters: true, Own: t.OwnIngress(), IFB: ifb, Astray: true})
					continue
				}
				inner, err := ReadTree(ctx, r, ifb)
				if err != nil {
					return nil, err
				}
				held = append(held, Held{Device: dev, Enters: true, Queue: inner.Queue(), Rate: unit.Rate(inner.Rate()), Own: t.OwnIngress(), IFB: ifb})
			}
		}
	}
	return held, nil
}

// FirstCommands returns the commands that shape an untouched router: offloads
// first, one command each.
func FirstCommands(p plan.Plan) ([][]string, error) {
	commands, err := UntouchedCommands(p)
	if err != nil {
		return nil, err
	}
	var out [][]string
	for _, o := range p.Offloads {
		out = append(out, []string{"ethtool", "-K", o.Device, o.Feature, "off"})
	}
	out = append(out, commands...)
	return out, nil
}

// Restore returns the commands that restore a snapshot: they remove everything that
// may exist and make it again. Some may fail.
func (b *Backend) Restore(before, wanted platform.State) ([]platform.Step, error) {
	s, err := decode(before)
	if err != nil {
		return nil, err
	}
	var w state
	if wanted != nil {
		if w, err = decode(wanted); err != nil {
			return nil, err
		}
	}
	made := cmp.Or(w.Table, nft.Table{WAN: s.Table.WAN})
	steps := []platform.Step{{Argv: []string{"nft", "delete", "table", nft.Family, made.Name()}}}
	steps = append(steps, b.queueSteps(tc.Restoring(s.State, w.State))...)
	steps = append(steps, dropPrograms(w.Programs, s.Programs)...)
	if b.Remote && s.Programs != nil {
		steps = append(steps, forgetOthers(s.Programs.WAN, s.Programs.Keys))
	}
	steps = append(steps, tableSteps(nft.Table{}, s.Table)...)
	if s.Resolver != nil {
		steps = append(append(steps, s.Resolver.Files.Restore()...), platform.Step{Argv: s.Resolver.Restart})
	}
	return steps, nil
}
