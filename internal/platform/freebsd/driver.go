package freebsd

import (
	"context"

	"unbloat/aqm"
	"unbloat/internal/lang/dummynet"
	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/platform/bsd"
)

// Driver returns FreeBSD's driver: dnctl(8), ipfw(8) and rc.conf(5).
func Driver() *platform.Driver {
	return &platform.Driver{
		Language:   Language(),
		Is:         func(_ context.Context, _ platform.Runner, kernel, _ string) bool { return kernel == "FreeBSD" },
		Base:       true,
		DefaultWAN: platform.RouteInterface,
		CheckWAN:   platform.CheckIfconfig,
		Render:     Render,
		Checks:     bsd.Checks(bsd.ForFreeBSD()),
		Backend:    func(o platform.Options) (platform.Backend, error) { return &Backend{Runner: o.Runner}, nil },
		StateDir:   platform.LastingDir,
		Retune:     &platform.Retune{Every: platform.RetuneEvery, Can: platform.BothShaped},
		Sorter:     bsd.NewSorter,
		Sorted:     sorted,
		Simulated:  platform.Simulated{CoDel: aqm.FreeBSD, Shaper: platform.Pipe},
	}
}

// sorted reads the class of a flow from the table.
func sorted(ctx context.Context, r platform.Runner, f nft.Flow, d plan.Direction) (plan.Class, bool, error) {
	list := dummynet.ListEntries()
	out, err := platform.Output(ctx, r, list...)
	if err != nil {
		return "", false, err
	}
	in := dummynet.ParseEntries(string(out))
	packet := f.Of(d)
	keys := map[string]int{}
	dummynet.SortedFlow{Protocol: packet.Protocol, Home: f.Home, Far: f.Far, Direction: d}.Entries(keys)
	for key := range keys {
		for _, c := range plan.AllClasses() {
			if queue, ok := in[key]; ok && queue == dummynet.ClassQueue(d, c) {
				return c, true, nil
			}
		}
	}
	return "", false, nil
}
