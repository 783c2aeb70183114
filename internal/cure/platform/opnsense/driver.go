package opnsense

import (
	"context"
	"fmt"
	"time"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
)

// Scheme is the URL scheme of OPNsense's API.
const Scheme = "opnsense+https"

// retuneEvery is longer than elsewhere: the API has no way to a running pipe that
// leaves the saved settings alone.
const retuneEvery = 5 * time.Second

// Driver returns OPNsense's driver: the API of its shaper.
func Driver() *platform.Driver {
	return &platform.Driver{
		Language: Language(),
		Is: func(ctx context.Context, r platform.Runner, kernel, _ string) bool {
			return kernel == "FreeBSD" && platform.Has(ctx, r, "/usr/local/opnsense")
		},
		DefaultWAN: func(context.Context, platform.Runner) (string, error) { return "wan", nil },
		Render:     Render,
		Checks:     checks,
		Backend: func(o platform.Options) (platform.Backend, error) {
			if !o.API {
				return nil, &platform.PreconditionError{Doing: "change an OPNsense router", What: "its settings belong to its own API", Remedy: "reach it with --router " + Scheme + "://HOST"}
			}
			return &Backend{Runner: o.Runner}, nil
		},
		StateDir: platform.LastingDir,
		// Each change writes config.xml, and a copy of the old one beside it.
		Retune:    &platform.Retune{Every: retuneEvery, Can: platform.BothShaped, Device: device},
		Scheme:    Scheme,
		Simulated: platform.Simulated{CoDel: bsd.CoDel, Shaper: platform.Pipe, Commands: loaded},
	}
}

// loaded returns the commands that OPNsense makes of a plan, for the simulator.
func loaded(p plan.Plan) (string, error) {
	it, _, err := dummynet.RenderItems(p)
	return it.Loaded("igb0"), err
}

// configFile holds the settings of an OPNsense router.
const configFile = "/conf/config.xml"

// device returns the interface of a WAN such as "wan" or "opt1", which the router
// itself knows from its settings.
func device(ctx context.Context, r platform.Runner, wan string) (string, error) {
	text, err := platform.Output(ctx, r, "cat", configFile)
	if err != nil {
		return "", fmt.Errorf("find the interface of %s: %w; only OPNsense itself can follow its line", wan, err)
	}
	root, err := bsd.ParseConfig(string(text))
	if err != nil {
		return "", fmt.Errorf("find the interface of %s in %s: %w", wan, configFile, err)
	}
	if name := root.Child("interfaces").Child(wan).Value("if"); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("find the interface of %s: %s has no such one", wan, configFile)
}
