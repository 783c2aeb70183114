package openwrt

import (
	"context"

	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
)

// Driver returns OpenWrt's driver: sqm-scripts, or tc(8) directly if asked for.
func Driver() *platform.Driver {
	return &platform.Driver{
		Language: Language(),
		Is: func(ctx context.Context, r platform.Runner, kernel, _ string) bool {
			return kernel == "Linux" && platform.Has(ctx, r, "/etc/openwrt_release")
		},
		Capabilities: detect,
		Lacking:      linux.Lacking,
		CheckWAN:     linux.CheckWAN,
		Aliases:      linux.Aliases,
		DefaultWAN:   linux.DefaultWAN,
		Render:       Render,
		Checks:       linux.Checks(linux.Examined{SQM: true, Judged: true}),
		Backend:      func(o platform.Options) (platform.Backend, error) { return &Backend{Runner: o.Runner}, nil },
		// /var is on a tmpfs; /etc survives a reboot, as the sections do.
		StateDir:  "/etc/unbloat/state",
		Classes:   linux.Classes(),
		Simulated: platform.Simulated{CoDel: "linux-6.12", Shaper: platform.HTB, FIFOBytes: true},
		OwnTC:     ownTC,
		Service:   Service,
	}
}

// ownTC returns Linux's driver with OpenWrt's Persister.
func ownTC() *platform.Driver {
	d := linux.Driver()
	d.Contends = contends
	d.Persister = func(o platform.Options) platform.Persister { return Persister{Runner: o.Runner} }
	return d
}

// contends returns an error if sqm-scripts shapes wan at every start and hotplug
// event.
func contends(ctx context.Context, r platform.Runner, wan string) error {
	text, err := platform.Output(ctx, r, "cat", Config)
	if err != nil {
		return nil // sqm-scripts is not installed
	}
	sections, err := sqm.Parse(string(text))
	if err != nil {
		return &platform.PreconditionError{Doing: "look for sqm-scripts' shaper on " + wan, What: Config + ": " + err.Error(), Remedy: "mend that file first", Err: err}
	}
	for _, s := range sections {
		if s.Shapes(wan) {
			return &platform.PreconditionError{Doing: "keep the shaping of " + wan, What: "sqm-scripts shapes it too (section " + s.Name + ")",
				Remedy: "hand it over: " + s.SwitchOff()}
		}
	}
	return nil
}

// detect is linux.Detect, where sqm-scripts start the shaper: they load the BPF program by
// unbloat itself.
func detect(ctx context.Context, r platform.Runner, wan, lan string) (plan.Capabilities, error) {
	f, err := linux.Detect(ctx, r, wan, lan)
	if err == nil && f.NoBPF == "" && linux.Absent(ctx, r) {
		f.NoBPF = "sqm-scripts' start loads the BPF program by unbloat itself, which is not on the router; to have it: install it there, or let tc(8) load it, without sqm-scripts: --own-tc"
	}
	return f, err
}
