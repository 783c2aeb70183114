package linux

import (
	"slices"

	"unbloat/internal/lang/nft"
	"unbloat/internal/lang/tc"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
)

// Drift implements apply.Drifter: of what was applied, what is ours must still be
// there. What somebody else does on the same devices is theirs, and a line that
// went down and came back has lost nothing.
func (b *Backend) Drift(p plan.Plan, now, applied platform.State) ([]string, error) {
	is, err := decode(now)
	if err != nil {
		return nil, err
	}
	was, err := decode(applied)
	if err != nil {
		return nil, err
	}
	var diffs []string
	for i, w := range was.Devices {
		a := is.Device(w.Name)
		if w.Exists && !a.Exists && w.Kind != "ifb" { // that of an ifb is a difference already
			diffs = append(diffs, w.Name+": the device is missing")
		}
		was.Devices[i] = oursOf(p, a, w)
	}
	diffs = append(diffs, tc.Differences(is.State, was.State)...)
	if is.Hidden || others(is, p.WAN) || others(was, p.WAN) {
		return diffs, nil
	}
	diffs = append(diffs, nft.Differences(is.Table, was.Table)...)
	return append(diffs, is.Resolver.differences(was.Resolver)...), nil
}

// oursOf returns w as far as it is what p asks for, the rest as a has it.
func oursOf(p plan.Plan, a, w tc.Device) tc.Device {
	w.Steady = false
	root, in := w.Tree.Split()
	isRoot, isIn := a.Tree.Split()
	if !w.Tree.OwnRoot() {
		root = isRoot
	}
	if !w.Tree.OwnIngress() {
		in = isIn
	}
	w.Tree = tc.Join(root, in)
	off := map[string]bool{}
	for name, on := range w.Features {
		if slices.ContainsFunc(p.Offloads, func(o plan.Offload) bool {
			return o.Device == w.Name && slices.Contains(tc.FeatureLeaves(o.Feature), name)
		}) {
			off[name] = on
		}
	}
	w.Features = off
	return w
}
