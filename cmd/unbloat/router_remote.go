//go:build !router

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/remote"
	"unbloat/internal/show/cli"
)

// noRemote is why no router elsewhere is reached; nil: they are.
func noRemote() error { return nil }

// registerWay adds the flags for a router elsewhere.
func (f *targetFlags) registerWay(fs *pflag.FlagSet) {
	fs.StringVar(&f.router, "router", "", "reach the router at `ADDRESS`: ssh://user@host[:port] or opnsense+https://host[:port] (default: this machine)")
	fs.StringVar(&f.identity, "identity", "", "private key `FILE` for SSH (default: the agent's, and ~/.ssh/id_*)")
	fs.StringVar(&f.knownHosts, "known-hosts", "", "`FILE` of host keys (default: ~/.ssh/known_hosts and the system's)")
	fs.StringVar(&f.apiKeyFile, "api-key-file", "", "`FILE` with the API's key and secret, as OPNsense lets you download it (default: OPNSENSE_KEY and OPNSENSE_SECRET)")
	fs.StringVar(&f.fingerprint, "fingerprint", "", "SHA-256 of the router's certificate, instead of a trusted authority (default: OPNSENSE_FINGERPRINT)")
}

// registerWatchdog adds the flag for where the watchdog of a router elsewhere
// runs.
func (f *targetFlags) registerWatchdog(fs *pflag.FlagSet) {
	fs.StringVar(&f.watchdogAt, "watchdog", "", "opnsense+https: keep the watchdog on the router itself, reached at `ADDRESS` ssh://user@host[:port] (default: on this machine)")
	fs.StringVar(&f.watchdogAt, "guard", "", "what --watchdog was called") // scripts use it
	_ = fs.MarkHidden("guard")
}

// dial connects to a shell at an address.
func (f *targetFlags) dial(ctx context.Context, address string) (*remote.SSH, error) {
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

// reach makes the router run its commands over SSH.
func (f *targetFlags) reach(ctx context.Context, r *router) error {
	ssh, err := f.dial(ctx, f.router)
	if err != nil {
		return err
	}
	r.runner, r.Close = ssh, func() { ssh.Close() }
	return nil
}

// watchdogThere makes the watchdog run on the router itself.
func watchdogThere(r *router) {
	r.engine.Watchdog = &remote.Watchdog{Runner: r.runner, Backend: r.engine.Backend, Uptime: apply.Uptime}
}

// badAddress reports whether an error is about a router's address.
func badAddress(err error) bool {
	var e *remote.AddressError
	return errors.As(err, &e)
}

// openREST connects to a router's API.
func (f *routerFlags) openREST(ctx context.Context, d *platform.Driver) (*router, error) {
	if f.platform != "" && f.platform != d.Name() {
		return nil, cli.UsageError("--for %s: what answers at %s:// is %s", f.platform, d.Scheme, d.Name())
	}
	key, secret, err := apiKey(f.apiKeyFile)
	if err != nil {
		return nil, err
	}
	fingerprint := f.fingerprint
	if fingerprint == "" {
		fingerprint = os.Getenv("OPNSENSE_FINGERPRINT")
	}
	api, err := remote.NewREST(strings.TrimPrefix(f.router, "opnsense+"), key, secret, fingerprint)
	if err != nil {
		return nil, err
	}
	r := &router{driver: d, runner: api, far: true, Close: func() {}}
	if err := f.configure(r, true); err != nil {
		return nil, err
	}
	at := f.watchdogAt
	if at == "" {
		at = watchdogOf(r.engine)
	}
	if at == "" {
		return r, nil
	}
	ssh, err := f.dial(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("reach the watchdog on the router: %w", err)
	}
	watchdog := api.Watchdog(ssh, r.engine.Backend)
	watchdog.Uptime = apply.Uptime
	r.engine.Watchdog, r.engine.WatchdogAt, r.far, r.Close = watchdog, at, false, func() { ssh.Close() }
	return r, nil
}

// watchdogOf returns the location of an open change's watchdog; "" if there is
// none, or if it is on this machine.
func watchdogOf(e *apply.Engine) string {
	for _, wan := range e.WANs() {
		if j, err := e.Pending(wan); err == nil && j != nil {
			return j.WatchdogAt
		}
	}
	return ""
}

// apiKey reads the key and the secret from the file that OPNsense offers for
// download (key=…, secret=…), or from the environment. They are never
// arguments, which other users could see.
func apiKey(path string) (key, secret string, err error) {
	if path == "" {
		return os.Getenv("OPNSENSE_KEY"), os.Getenv("OPNSENSE_SECRET"), nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", "", cli.UsageError("read the API's key: %w", err)
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
		return "", "", cli.UsageError("read the API's key %s: it must have the lines key=… and secret=…", path)
	}
	return key, secret, nil
}
