package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/show/cli"
)

// targetFlags are the flags that name the router; the zero value is this
// machine.
type targetFlags struct {
	router      string
	platform    string
	identity    string
	knownHosts  string
	apiKeyFile  string
	fingerprint string
	watchdogAt  string
	ownTC       bool
}

func (f *targetFlags) register(c *cobra.Command) {
	fs := c.Flags()
	f.registerWay(fs)
	fs.StringVar(&f.platform, "for", "", "the router's `PLATFORM` (default: detected)")
	f.registerWatchdog(fs)
	f.registerOwnTC(fs)
}

func (f *targetFlags) registerOwnTC(fs *pflag.FlagSet) {
	fs.BoolVar(&f.ownTC, "own-tc", false, "OpenWrt: shape with tc directly, without sqm-scripts")
}

// argv returns the flags by which another process reaches the same router.
func (f *targetFlags) argv() []string {
	var out []string
	for _, x := range []struct{ name, value string }{{"--router", f.router}, {"--for", f.platform}, {"--identity", f.identity},
		{"--known-hosts", f.knownHosts}, {"--api-key-file", f.apiKeyFile}, {"--fingerprint", f.fingerprint}, {"--watchdog", f.watchdogAt}} {
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
	driver    *platform.Driver // Linux's for an OpenWrt that is shaped with tc
	runner    platform.Runner
	engine    *apply.Engine
	persister platform.Persister
	far       bool // the router is not this machine, but the watchdog is on it
	owned     bool // with tc(8) directly, beside the platform's own service
	// beside is the same router by the way of shaping that was not chosen, if WANs are shaped both ways.
	beside *router
	Close  func()
}

// machine is the one that this program runs on; tests have programs of their own there.
var machine platform.Local

// open connects to the router of the flags.
func (f *routerFlags) open(ctx context.Context) (*router, error) {
	r := &router{runner: machine, Close: func() {}}
	f.asDaemon(ctx)
	if d := byScheme(driversOf(ctx), f.router); d != nil {
		return f.openREST(ctx, d)
	}
	if f.router != "" {
		if err := f.reach(ctx, r); err != nil {
			return nil, err
		}
	}
	if f.watchdogAt != "" {
		r.Close()
		return nil, cli.UsageError("--watchdog goes with --router opnsense+https://…; over SSH the watchdog is on the router anyway")
	}
	if f.platform == "" {
		r.driver = platform.Detect(ctx, r.runner, driversOf(ctx))
	} else {
		d, err := driversOf(ctx).Find(f.platform)
		if err != nil {
			r.Close()
			return nil, cli.UsageError("--for %w", err)
		}
		r.driver = d
	}
	if err := f.chooseWay(r); err != nil {
		r.Close()
		return nil, err
	}
	return r, f.resolve(ctx, r)
}

// resolve gives the interfaces of the command's flags the names that everything else
// knows them by.
func (f *routerFlags) resolve(ctx context.Context, r *router) error {
	var given []pflag.Value
	for _, name := range []string{"wan", "lan"} {
		if f.flags == nil {
			break
		}
		if flag := f.flags.Lookup(name); flag != nil && flag.Value.String() != "" {
			given = append(given, flag.Value)
		}
	}
	if given == nil {
		return nil
	}
	named := r.named(ctx)
	var errs []error
	for _, v := range given {
		errs = append(errs, v.Set(named(v.String())))
	}
	return errors.Join(errs...)
}

// named returns a function that gives an interface's own name for any that it has.
func (r *router) named(ctx context.Context) func(string) string {
	var aliases map[string]string
	if r.driver.Aliases != nil {
		aliases, _ = r.driver.Aliases(ctx, r.runner) // whoever looks for the interface says what is wrong
	}
	return func(name string) string { return cmp.Or(aliases[name], name) }
}

// chooseWay configures a router. Where it can be shaped by a service of the platform or with tc(8) directly,
// the flag or a running daemon chooses; otherwise it is the way in which the record says that it is shaped.
func (f *routerFlags) chooseWay(r *router) error {
	if err := f.configure(r, false); err != nil || r.driver.OwnTC == nil {
		return err
	}
	own := *r
	own.driver, own.owned = r.driver.OwnTC(), true
	if err := f.configure(&own, false); err != nil {
		return err
	}
	recorded := !f.finalDir && len(own.wans()) > 0 // the watchdog is told
	switch {
	case f.ownTC, recorded && len(r.wans()) == 0:
		*r = own
	case recorded:
		r.beside = &own
	}
	return nil
}

// ways are the router in each way in which WANs of it are shaped; the chosen one comes first.
func (r *router) ways() []*router {
	if r.beside == nil {
		return []*router{r}
	}
	return []*router{r, r.beside}
}

// wans are the WANs with an open change or a record of this way of shaping.
func (r *router) wans() []string {
	return slices.DeleteFunc(r.engine.WANs(), func(wan string) bool {
		p, ok := r.inForce(wan)
		return ok && p.Platform != "" && p.Platform != r.driver.Name()
	})
}

// byScheme returns the driver whose API has this kind of address, or nil.
func byScheme(drivers platform.Drivers, address string) *platform.Driver {
	for _, d := range drivers {
		if d.Scheme != "" && strings.HasPrefix(address, d.Scheme+"://") {
			return d
		}
	}
	return nil
}

// configure sets the router's backend, persister and watchdog. api says that the
// runner uses the platform's API, not a shell.
func (f *routerFlags) configure(r *router, api bool) error {
	engine, err := f.engine(r.driver, r.runner, api)
	if err != nil {
		return err
	}
	r.engine, r.persister = engine, platform.Lasting{}
	if engine.Dir, err = f.journalDir(r.driver); err != nil {
		return err
	}
	engine.WatchdogArgv = f.watchdog(r)
	if r.driver.Persister != nil {
		r.persister = r.driver.Persister(f.options(r.runner, api))
	}
	if f.router != "" && !api {
		watchdogThere(r)
	}
	return nil
}

// watchdog returns the command that undoes a change of this router.
func (f *routerFlags) watchdog(r *router) []string {
	same := f.targetFlags
	same.platform = r.driver.Name()
	return append([]string{r.engine.WatchdogArgv[0], "watchdog", "--state-dir", r.engine.Dir, "--dir-is-final"}, same.argv()...)
}

// journalDir returns the directory of the journal of a driver's changes. If a reboot
// removes this machine's shapers, it is one that a reboot empties. For another router it is
// one of our own.
func (f *routerFlags) journalDir(d *platform.Driver) (string, error) {
	switch name := journalName(f.router); {
	case f.finalDir:
		return f.stateDir, nil
	case f.router != "" && f.stateDir != defaultStateDir:
		return filepath.Join(f.stateDir, name), nil
	case f.router != "":
		base, err := stateHome()
		if err != nil {
			return "", &platform.PreconditionError{Doing: "keep a journal of " + f.router, What: err.Error(), Remedy: "set HOME, or name a directory with --state-dir", Err: err}
		}
		return filepath.Join(base, "unbloat", name), nil
	case f.stateDir != defaultStateDir:
		return f.stateDir, nil
	}
	return d.StateDir, nil
}

// journalName is the name of the directory of the journal of a router elsewhere.
func journalName(address string) string {
	return strings.NewReplacer("/", "_", ":", "_", "@", "_at_").Replace(address)
}

// elsewhere returns the addresses of the routers that were changed from this machine, of
// which a command without --router knows nothing.
func (f *routerFlags) elsewhere() []string {
	base := f.stateDir
	if base == defaultStateDir {
		home, err := stateHome()
		if err != nil {
			return nil
		}
		base = filepath.Join(home, "unbloat")
	}
	entries, _ := os.ReadDir(base) // nothing was changed from here
	var out []string
	for _, e := range entries {
		scheme, rest, ok := strings.Cut(e.Name(), "___")
		if f.router != "" || !ok || len((&apply.Engine{Dir: filepath.Join(base, e.Name())}).WANs()) == 0 {
			continue
		}
		host := strings.Replace(rest, "_at_", "@", 1)
		if i := strings.LastIndexByte(host, '_'); i > 0 && !strings.ContainsFunc(host[i+1:], func(r rune) bool { return r < '0' || r > '9' }) {
			host = host[:i] + ":" + host[i+1:] // a port
		}
		if i := strings.IndexByte(host, '['); i >= 0 { // IPv6
			host = host[:i] + strings.ReplaceAll(host[i:], "_", ":")
		}
		if address := scheme + "://" + host; journalName(address) == e.Name() {
			out = append(out, address)
		}
	}
	return out
}

// stateHome returns where this user's programs keep their state. A relative path would be
// chosen by whoever made the working directory; the XDG specification ignores it too.
func stateHome() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err == nil && !filepath.IsAbs(home) {
		err = fmt.Errorf("the home %q is no absolute path", home)
	}
	return filepath.Join(home, ".local", "state"), err
}

// lacking adds to an error of plan.Make how to install what the router lacks,
// if that is known.
func (r *router) lacking(ctx context.Context, wan string, err error) error {
	if err == nil || r.driver.Lacking == nil {
		return err
	}
	return r.driver.Lacking(ctx, r.runner, wan, err)
}

// capabilities returns the router's capabilities.
func (r *router) capabilities(ctx context.Context, wan, lan string) (plan.Capabilities, error) {
	return r.driver.Detect(ctx, r.runner, wan, lan)
}

// planFor makes a plan for what the router has now: `plan` shows what `apply` would do.
func (r *router) planFor(ctx context.Context, wan, lan string, given plan.Capabilities, line plan.Line, w plan.Preferences) (plan.Plan, error) {
	named := r.named(ctx)
	caps, err := r.capabilities(ctx, named(wan), named(lan))
	if err != nil {
		return plan.Plan{}, changeError(err)
	}
	caps.MTU, caps.Work = cmp.Or(given.MTU, caps.MTU), given.Work
	r.names(ctx, w.Classes, &caps)
	p, err := plan.Make(line, caps, w)
	return p, r.lacking(ctx, caps.WAN, err)
}

// defaultWAN is the interface of the default routes.
func (r *router) defaultWAN(ctx context.Context) (string, error) {
	return r.driver.DefaultWAN(ctx, r.runner)
}

// checkWAN refuses a WAN that is no interface of the router, if that can be
// checked. If something was applied to it, status reports that it is gone
// instead.
func (r *router) checkWAN(ctx context.Context, wan string) error {
	if wan == "" || slices.Contains(r.wans(), wan) {
		return nil
	}
	if r.driver.CheckWAN == nil {
		return nil
	}
	return r.driver.CheckWAN(ctx, r.runner, wan)
}

// shapers describes all shapers on the router, foreign ones too.
func (r *router) shapers(ctx context.Context, wan string) ([]platform.Shaped, error) {
	if wan == "" {
		wan, _ = r.defaultWAN(ctx) // "": what isn't of a WAN is described all the same
	}
	return r.engine.Backend.Shapers(ctx, wan)
}

// ownedPlans returns plans of ours that are in force without a record.
func (r *router) ownedPlans(ctx context.Context, wan string) ([]plan.Plan, error) {
	if r.driver.Owned != nil {
		return r.driver.Owned(ctx, r.runner)
	}
	if wan == "" {
		var err error
		if wan, err = r.defaultWAN(ctx); err != nil {
			return nil, fmt.Errorf("find what to undo, of which there is no record: %w", err)
		}
	}
	return []plan.Plan{{Schema: plan.Schema, Platform: r.driver.Name(), WAN: wan}}, nil
}
