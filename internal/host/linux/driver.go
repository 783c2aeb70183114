package linux

import (
	"context"

	"unbloat/aqm"
	"unbloat/internal/host"
)

// Driver returns what is Linux's own: tc(8), nft(8), and a systemd unit that
// applies a plan at boot.
func Driver() *host.Driver {
	return &host.Driver{
		Language:     Language(),
		Is:           func(_ context.Context, _ host.Runner, kernel, _ string) bool { return kernel == "Linux" },
		Base:         true,
		Capabilities: Detect,
		DefaultWAN:   DefaultWAN,
		Lacking:      Lacking,
		CheckWAN:     CheckWAN,
		Unsure:       unsure,
		Render:       Render,
		Checks:       Checks(Examined{TakesOver: true}),
		Backend: func(o host.Options) (host.Backend, error) {
			return &Backend{Runner: o.Runner, Replace: o.Replace, Preview: o.Preview}, nil
		},
		Keeper: func(o host.Options) host.Keeper {
			if o.Remote {
				return absent{}
			}
			return Keeper{Root: o.Root, Exe: o.Exe, Runner: o.Runner}
		},
		StateDir:  host.VolatileDir,
		Owned:     OwnedPlans,
		Classes:   Classes(),
		Simulated: host.Simulated{CoDel: aqm.Linux73, Shaper: host.HTB, FIFOBytes: true},
	}
}

// unsure says why a preview by this user may be wrong.
func unsure(ctx context.Context, r host.Runner) string {
	if ok, known := Privileged(ctx, r); known && !ok {
		return "this user may neither read nftables' rules nor try the plan on the kernel, so what is there already, and whether the kernel takes the plan, is not known"
	}
	return ""
}

// Classes is what connection tracking and our table of nftables know.
func Classes() *host.Classes {
	return &host.Classes{Lost: LostClasses, Flows: Flows, Machines: Machines, Hosts: Hosts, Why: Why}
}
