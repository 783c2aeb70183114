package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/apply"
	"unbloat/internal/apply/proc"
	"unbloat/internal/host"
	"unbloat/internal/plan"
	"unbloat/internal/platform/all"
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

// A router is one router as the commands see it.
type router struct {
	driver *host.Driver // that of an OpenWrt shaped by tc is Linux's
	runner host.Runner
	engine *apply.Engine
	keeper host.Keeper
	far    bool // the guard is on this machine, the router is not
	Close  func()
}

// open reaches the router that the flags name.
func (f *routerFlags) open(ctx context.Context) (*router, error) {
	r := &router{runner: host.Local{}, Close: func() {}}
	if d := byScheme(f.router); d != nil {
		return f.openREST(ctx, d)
	}
	if f.router != "" {
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
	if f.platform == "" {
		r.driver = all.Detect(ctx, r.runner)
	} else {
		d, err := all.Find(f.platform)
		if err != nil {
			r.Close()
			return nil, usageError("--for %w", err)
		}
		r.driver = d
	}
	if f.ownTC && r.driver.OwnTC != nil {
		r.driver = r.driver.OwnTC()
	}
	if err := f.configure(r, false); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// byScheme returns the driver whose API is at an address; nil if it is none's.
func byScheme(address string) *host.Driver {
	for _, d := range all.Drivers() {
		if d.Scheme != "" && strings.HasPrefix(address, d.Scheme+"://") {
			return d
		}
	}
	return nil
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

// configure gives the router its backend, its keeper, and what undoes a change.
// api says that the runner reaches the platform's API, not a shell.
func (f *routerFlags) configure(r *router, api bool) error {
	engine, err := f.engine(r.driver, r.runner, api)
	if err != nil {
		return err
	}
	r.engine, r.keeper = engine, host.Lasting{}
	engine.Dir = f.journalDir(r)
	engine.Guard = f.guard(r)
	if r.driver.Keeper != nil {
		r.keeper = r.driver.Keeper(f.options(r.runner, api))
	}
	if f.router != "" && !api {
		if b, ok := engine.Backend.(remote.Restorer); ok {
			engine.Deadman = &remote.Deadman{Runner: r.runner, Backend: b, Uptime: proc.Uptime}
		}
	}
	return nil
}

// guard is the command that undoes a change of this router.
func (f *routerFlags) guard(r *router) []string {
	same := f.whereFlags
	same.platform = r.driver.Name()
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
	if f.stateDir != defaultStateDir {
		return f.stateDir
	}
	return r.driver.StateDir
}

// openREST reaches the API of a router.
func (f *routerFlags) openREST(ctx context.Context, d *host.Driver) (*router, error) {
	if f.platform != "" && f.platform != d.Name() {
		return nil, usageError("--for %s: what answers at %s:// is %s", f.platform, d.Scheme, d.Name())
	}
	key, secret, err := apiKey(f.apiKeyFile)
	if err != nil {
		return nil, err
	}
	api, err := remote.NewREST(strings.TrimPrefix(f.router, "opnsense+"), key, secret, f.fingerprint)
	if err != nil {
		return nil, err
	}
	r := &router{driver: d, runner: api, far: true, Close: func() {}}
	if err := f.configure(r, true); err != nil {
		return nil, err
	}
	backend, ok := r.engine.Backend.(remote.Restorer)
	if !ok {
		return r, nil
	}
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

// lacking says of an error of plan.Make what brings what the router lacks, where
// that is known.
func (r *router) lacking(ctx context.Context, wan string, err error) error {
	if err == nil || r.driver.Lacking == nil {
		return err
	}
	return r.driver.Lacking(ctx, r.runner, wan, err)
}

// facts are what plan.Make wants to know of the router.
func (r *router) facts(ctx context.Context, wan, lan string) (plan.Facts, error) {
	return r.driver.Facts(ctx, r.runner, wan, lan)
}

// defaultWAN is the interface of the default route, "" if there is none.
func (r *router) defaultWAN(ctx context.Context) string { return r.driver.DefaultWAN(ctx, r.runner) }

// checkWAN refuses a WAN that is no interface of the router, where that can be
// seen, unless something was applied to it: then status says that it is gone.
func (r *router) checkWAN(ctx context.Context, wan string) error {
	if wan == "" || slices.Contains(r.engine.WANs(), wan) {
		return nil
	}
	if r.driver.CheckWAN == nil {
		return nil
	}
	return r.driver.CheckWAN(ctx, r.runner, wan)
}

// shapers explains what shapes on the router, whoever made it.
func (r *router) shapers(ctx context.Context, wan string) ([]host.Shaped, error) {
	if wan == "" {
		wan = r.defaultWAN(ctx)
	}
	return r.engine.Backend.(host.Shaper).Shapers(ctx, wan)
}

// ownedPlans finds what is ours without a record of it.
func (r *router) ownedPlans(ctx context.Context, wan string) ([]plan.Plan, error) {
	if r.driver.Owned != nil {
		return r.driver.Owned(ctx, r.runner)
	}
	if wan == "" {
		wan = r.defaultWAN(ctx)
	}
	if wan == "" {
		return nil, &host.PreconditionError{Doing: "find what to undo", What: "there is no record of a change, and no default route", Remedy: "name the interface with --wan"}
	}
	return []plan.Plan{{Schema: plan.Schema, Platform: r.driver.Name(), WAN: wan}}, nil
}
