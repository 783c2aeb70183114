package linux

import (
	"slices"

	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Drift implements platform.Backend: everything of ours that was applied must
// still exist. Other changes on the same devices don't count, and neither does
// a link that went down and came back.
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
		if w.Exists && !a.Exists && w.Kind != "ifb" && !w.Beneath { // a missing ifb is reported already
			diffs = append(diffs, w.Name+": the device is missing")
		}
		was.Devices[i] = oursOf(p, a, w)
	}
	diffs = append(diffs, tc.Differences(is.State, was.State)...)
	diffs = append(diffs, missingPrograms(is.Programs, was.Programs)...)
	if is.Hidden {
		return diffs, nil
	}
	diffs = append(diffs, nft.Differences(is.Table, was.Table)...)
	return append(diffs, is.Resolver.differences(was.Resolver)...), nil
}

// oursOf returns the parts of w that p asks for, and the rest from a.
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
