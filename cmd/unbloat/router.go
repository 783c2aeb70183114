package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/apply"
	"unbloat/internal/apply/proc"
	"unbloat/internal/host"
	"unbloat/internal/host/clearos"
	"unbloat/internal/host/freebsd"
	"unbloat/internal/host/linux"
	"unbloat/internal/host/openbsd"
	"unbloat/internal/host/openwrt"
	"unbloat/internal/host/opnsense"
	"unbloat/internal/host/pfsense"
	"unbloat/internal/plan"
	"unbloat/internal/remote"
)

// whereFlags say which router is meant; the zero value is this machine.
type whereFlags struct {
	router      string
	platform    string
	identity    string
	knownHosts  string
	apiKeyFile  string
	fingerprint string
	guardAt     string
	ownTC       bool
}

func (f *whereFlags) register(c *cobra.Command) {
	fs := c.Flags()
	f.registerWay(fs)
	fs.StringVar(&f.platform, "for", "", "the router's `PLATFORM` (default: it is asked)")
	fs.StringVar(&f.guardAt, "guard", "", "opnsense+https: keep the guard on the router itself, reached at `ADDRESS` ssh://user@host[:port] (default: on this machine)")
	fs.BoolVar(&f.ownTC, "own-tc", false, "OpenWrt: shape with tc directly, without sqm-scripts")
}

// registerWay adds the flags that lead to a router elsewhere.
func (f *whereFlags) registerWay(fs *pflag.FlagSet) {
	fs.StringVar(&f.router, "router", "", "reach the router at `ADDRESS`: ssh://user@host[:port] or opnsense+https://host[:port] (default: this machine)")
	fs.StringVar(&f.identity, "identity", "", "private key `FILE` for SSH (default: the agent's, and ~/.ssh/id_*)")
	fs.StringVar(&f.knownHosts, "known-hosts", "", "`FILE` of host keys (default: ~/.ssh/known_hosts and the system's)")
	fs.StringVar(&f.apiKeyFile, "api-key-file", "", "`FILE` with the API's key and secret, as OPNsense lets you download it (default: OPNSENSE_KEY and OPNSENSE_SECRET)")
	fs.StringVar(&f.fingerprint, "fingerprint", "", "SHA-256 of the router's certificate, instead of a trusted authority")
}

// argv returns the flags that lead another process to the same router.
func (f *whereFlags) argv() []string {
	var out []string
	for _, x := range []struct{ name, value string }{{"--router", f.router}, {"--for", f.platform}, {"--identity", f.identity},
		{"--known-hosts", f.knownHosts}, {"--api-key-file", f.apiKeyFile}, {"--fingerprint", f.fingerprint}, {"--guard", f.guardAt}} {
		if x.value != "" {
			out = append(out, x.name, x.value)
		}
	}
	if f.ownTC {
		out = append(out, "--own-tc")
	}
	return out
}

// A keeper makes a plan last over a reboot.
type keeper interface {
	Keep(ctx context.Context, p plan.Plan) error
	Forget(ctx context.Context) (done bool, err error)
	Kept() bool
}

// lasting is a platform whose settings last by themselves.
type lasting struct{}

func (lasting) Keep(context.Context, plan.Plan) error         { return nil }
func (lasting) Forget(context.Context) (done bool, err error) { return false, nil }
func (lasting) Kept() bool                                    { return false }

// fleeting is a Linux router elsewhere, on which no program of ours is left.
type fleeting struct{ lasting }

func (fleeting) Keep(context.Context, plan.Plan) error {
	return &host.PreconditionError{Doing: "keep the plan over a reboot", What: "it would take this program on the router",
		Remedy: "install it there and run `unbloat apply --yes --persist` there, or leave out --persist"}
}

// shapers is what a backend explains of a router.
type shapers interface {
	Shapers(ctx context.Context, wan string) ([]host.Shaped, error)
}

// A router is one router as the commands see it.
type router struct {
	platform string // of its backend: an OpenWrt shaped by tc is linux
	runner   host.Runner
	engine   *apply.Engine
	keeper   keeper
	wan, lan string // what interfaces are called where nobody says so
	far      bool   // the guard is on this machine, the router is not
	Close    func()
}

// open reaches the router that the flags name.
func (f *routerFlags) open(ctx context.Context) (*router, error) {
	r := &router{runner: host.Local{}, Close: func() {}}
	switch {
	case strings.HasPrefix(f.router, "opnsense+https://"):
		return f.openREST(ctx)
	case f.router != "":
		ssh, err := f.dial(ctx, f.router)
		if err != nil {
			return nil, err
		}
		r.runner, r.Close = ssh, func() { ssh.Close() }
	}
	if f.guardAt != "" {
		r.Close()
		return nil, usageError("--guard goes with --router opnsense+https://…; over SSH the guard is on the router anyway")
	}
	r.platform = f.platform
	if r.platform == "" {
		r.platform = host.Platform(ctx, r.runner)
	}
	if r.platform == plan.OpenWrt && f.ownTC {
		r.platform = plan.Linux
	}
	if err := f.outfit(r); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// dial reaches a shell at an address.
func (f *whereFlags) dial(ctx context.Context, address string) (*remote.SSH, error) {
	t, err := remote.ParseTarget(address)
	if err != nil {
		return nil, err
	}
	o := remote.SSHOptions{}
	if f.identity != "" {
		o.Identities = []string{f.identity}
	}
	if f.knownHosts != "" {
		o.KnownHosts = []string{f.knownHosts}
	}
	return remote.DialSSH(ctx, t, o)
}

// outfit gives the router its backend, its keeper, and what undoes a change.
func (f *routerFlags) outfit(r *router) error {
	engine, err := f.engine()
	if err != nil {
		return err
	}
	r.engine, r.keeper = engine, lasting{}
	engine.Runner, engine.Dir = r.runner, f.journalDir(r)
	engine.Guard = f.guard(r)
	switch r.platform {
	case plan.Linux:
		engine.Backend = &linux.Backend{Runner: r.runner, Replace: f.replace, Preview: f.preview}
		r.keeper = fleeting{}
		if f.ownTC {
			r.keeper = openwrt.Keeper{Runner: r.runner}
		} else if f.router == "" {
			if r.keeper, err = f.keeper(); err != nil {
				return err
			}
		}
	case plan.OpenWrt:
		engine.Backend = &openwrt.Backend{Runner: r.runner}
	case plan.ClearOS:
		engine.Backend = &clearos.Backend{Runner: r.runner}
	case plan.OpenBSD, plan.OpenBSDAltq:
		engine.Backend = &openbsd.Backend{Runner: r.runner, Altq: r.platform == plan.OpenBSDAltq}
	case plan.FreeBSD:
		engine.Backend = &freebsd.Backend{Runner: r.runner}
	case plan.OPNsense:
		return &host.PreconditionError{Doing: "change an OPNsense router", What: "its settings belong to its own API", Remedy: "reach it with --router opnsense+https://HOST"}
	case plan.PfSense:
		engine.Backend = &pfsense.Backend{Runner: r.runner}
	default:
		return usageError("--for %s: there is no such platform; use one of %s", r.platform, strings.Join(plan.Platforms(), ", "))
	}
	if f.router != "" {
		if b, ok := engine.Backend.(remote.Restorer); ok {
			engine.Deadman = &remote.Deadman{Runner: r.runner, Backend: b, Uptime: proc.Uptime}
		}
	}
	return nil
}

// guard is the command that undoes a change of this router.
func (f *routerFlags) guard(r *router) []string {
	same := f.whereFlags
	same.platform = r.platform
	return append([]string{r.engine.Guard[0], "guard", "--state-dir", r.engine.Dir, "--dir-is-final"}, same.argv()...)
}

// journalDir is where the journal is kept: for this machine where a reboot
// empties it, if a reboot empties the shapers too; for another one among our own.
func (f *routerFlags) journalDir(r *router) string {
	if f.finalDir {
		return f.stateDir
	}
	if f.router != "" {
		name := strings.NewReplacer("/", "_", ":", "_", "@", "_at_").Replace(f.router)
		if f.stateDir != defaultStateDir {
			return filepath.Join(f.stateDir, name)
		}
		base := os.Getenv("XDG_STATE_HOME")
		if base == "" {
			home, _ := os.UserHomeDir()
			base = filepath.Join(home, ".local", "state")
		}
		return filepath.Join(base, "unbloat", name)
	}
	switch {
	case f.stateDir != defaultStateDir || r.platform == plan.Linux:
		return f.stateDir
	case r.platform == plan.OpenWrt:
		return "/etc/unbloat/state"
	}
	return "/var/db/unbloat"
}

// openREST reaches an OPNsense router's API.
func (f *routerFlags) openREST(ctx context.Context) (*router, error) {
	if f.platform != "" && f.platform != plan.OPNsense {
		return nil, usageError("--for %s: what answers at opnsense+https:// is opnsense", f.platform)
	}
	key, secret, err := apiKey(f.apiKeyFile)
	if err != nil {
		return nil, err
	}
	api, err := remote.NewREST(strings.TrimPrefix(f.router, "opnsense+"), key, secret, f.fingerprint)
	if err != nil {
		return nil, err
	}
	r := &router{platform: plan.OPNsense, runner: api, keeper: lasting{}, wan: "wan", lan: "lan", far: true, Close: func() {}}
	if r.engine, err = f.engine(); err != nil {
		return nil, err
	}
	backend := &opnsense.Backend{Runner: api}
	r.engine.Backend, r.engine.Runner, r.engine.Dir = backend, api, f.journalDir(r)
	r.engine.Guard = f.guard(r)
	at := f.guardAt
	if at == "" {
		at = guardOf(r.engine)
	}
	if at == "" {
		return r, nil
	}
	ssh, err := f.dial(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("reach the guard on the router: %w", err)
	}
	deadman := api.Deadman(ssh, backend)
	deadman.Uptime = proc.Uptime
	r.engine.Deadman, r.engine.DeadmanAt, r.far, r.Close = deadman, at, false, func() { ssh.Close() }
	return r, nil
}

// guardOf is where the guard of an open change is reached; "" if there is none,
// or if it is on this machine.
func guardOf(e *apply.Engine) string {
	for _, wan := range e.WANs() {
		if j, err := e.Pending(wan); err == nil && j != nil {
			return j.DeadmanAt
		}
	}
	return ""
}

// apiKey reads the key and the secret from the file that OPNsense lets people
// download (key=…, secret=…), or from the environment. They are never arguments.
func apiKey(path string) (key, secret string, err error) {
	if path == "" {
		return os.Getenv("OPNSENSE_KEY"), os.Getenv("OPNSENSE_SECRET"), nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", "", usageError("read the API's key: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "key":
			key = value
		case "secret":
			secret = value
		}
	}
	if key == "" || secret == "" {
		return "", "", usageError("read the API's key %s: it must have the lines key=… and secret=…", path)
	}
	return key, secret, nil
}

// facts are what plan.Make wants to know of the router.
func (r *router) facts(ctx context.Context, wan, lan string) (plan.Facts, error) {
	switch r.platform {
	case plan.Linux, plan.OpenWrt, plan.ClearOS:
		f, err := linux.Detect(ctx, r.runner, wan, lan)
		f.Platform = r.platform
		return f, err
	}
	if wan == "" {
		if wan = r.defaultWAN(ctx); wan == "" {
			return plan.Facts{}, &host.PreconditionError{Doing: "find the WAN", What: "there is no default route", Remedy: "name the interface with --wan"}
		}
	}
	if lan == "" {
		lan = r.lan
	}
	return plan.Facts{Platform: r.platform, WAN: wan, LAN: lan}, nil
}

// defaultWAN is the interface of the default route, "" if there is none.
func (r *router) defaultWAN(ctx context.Context) string {
	switch r.platform {
	case plan.Linux, plan.OpenWrt, plan.ClearOS:
		return linux.DefaultWAN(ctx, r.runner)
	case plan.OPNsense:
		return r.wan
	}
	out, err := host.Output(ctx, r.runner, "route", "-n", "get", "default")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == "interface" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// shapers explains what shapes on the router, whoever made it.
func (r *router) shapers(ctx context.Context, wan string) ([]host.Shaped, error) {
	if b, ok := r.engine.Backend.(shapers); ok {
		if wan == "" {
			wan = r.defaultWAN(ctx)
		}
		return b.Shapers(ctx, wan)
	}
	return linux.Shapers(ctx, r.runner)
}

// ownedPlans finds what is ours without a record of it.
func (r *router) ownedPlans(ctx context.Context, wan string) ([]plan.Plan, error) {
	if r.platform == plan.Linux {
		return linux.OwnedPlans(ctx, r.runner)
	}
	if wan == "" {
		wan = r.defaultWAN(ctx)
	}
	if wan == "" {
		return nil, &host.PreconditionError{Doing: "find what to undo", What: "there is no record of a change, and no default route", Remedy: "name the interface with --wan"}
	}
	return []plan.Plan{{Schema: plan.Schema, Platform: r.platform, WAN: wan}}, nil
}
