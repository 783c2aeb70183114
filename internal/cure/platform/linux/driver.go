package linux

import (
	"context"
	"errors"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Driver returns Linux's driver: tc(8), nft(8), and a systemd unit that applies
// a plan at boot.
func Driver() *platform.Driver {
	return &platform.Driver{
		Language:     Language(),
		Is:           func(_ context.Context, _ platform.Runner, kernel, _ string) bool { return kernel == "Linux" },
		Base:         true,
		Capabilities: Detect,
		DefaultWAN:   DefaultWAN,
		Lacking:      Lacking,
		CheckWAN:     CheckWAN,
		Aliases:      Aliases,
		Unsure:       unsure,
		Render:       Render,
		Checks:       Checks(Examined{TakesOver: true, Judged: true}),
		Backend: func(o platform.Options) (platform.Backend, error) {
			return &Backend{Runner: o.Runner, Replace: o.Replace, Preview: o.Preview, Exe: o.Exe, Remote: o.Remote}, nil
		},
		Persister: func(o platform.Options) platform.Persister {
			if o.Remote {
				return platform.Absent{}
			}
			return Persister{Root: o.Root, Exe: o.Exe, Runner: o.Runner}
		},
		StateDir:  platform.VolatileDir,
		Owned:     OwnedPlans,
		Retune:    &platform.Retune{Netlink: true, Can: cakes},
		Classes:   Classes(),
		Simulated: platform.Simulated{CoDel: "linux-7.3", Shaper: platform.HTB, FIFOBytes: true},
	}
}

// cakes says why the shapers of a plan can't get other rates in place.
func cakes(p plan.Plan) error {
	if p.Down == nil || p.Up == nil || p.Down.AQM != plan.CAKE || p.Up.AQM != plan.CAKE {
		return errors.New("it takes CAKE in both directions, the only shaper that gets another rate several times a second")
	}
	return nil
}

// unsure returns why a preview by this user may be wrong; "" if it is reliable.
func unsure(ctx context.Context, r platform.Runner) string {
	if ok, known := Privileged(ctx, r); known && !ok {
		return "this user may neither read nftables' rules nor try the plan on the kernel, so what is there already, and whether the kernel takes the plan, is not known"
	}
	return ""
}

// Classes reads classes from the BPF program, or connection tracking and our nftables table.
func Classes() *platform.Classes {
	return &platform.Classes{Lost: LostClasses, Flows: Flows, Connections: Connections, Unread: unremembered, Hosts: Hosts, Decided: decided, Why: Why}
}
