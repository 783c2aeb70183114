package linux

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/platform/conf"
)

// A resolverConfig is how the router's own resolver fills the sets of rules that name
// domains: a file that dnsmasq(8) reads when it starts.
type resolverConfig struct {
	Path    string   `json:"path"`
	Restart []string `json:"restart"` // what starts dnsmasq again
	Runs    bool     `json:"runs"`
	Files   conf.Set `json:"files"`
}

// text is the file; "" if there is none.
func (f *resolverConfig) text() string {
	if f == nil {
		return ""
	}
	return f.Files.Text(f.Path)
}

// put returns the resolverConfig with this text, or without the file for none.
func (f *resolverConfig) put(text string) *resolverConfig {
	if f == nil {
		return nil
	}
	out := *f
	if out.Files = f.Files.Without(f.Path); text != "" {
		out.Files = f.Files.Put(f.Path, text, "644")
	}
	return &out
}

// differences says in words where what is there is not what is wanted.
func (f *resolverConfig) differences(w *resolverConfig) []string {
	if f == nil || w == nil {
		return nil
	}
	out := conf.Differences(f.Files, w.Files)
	if w.Runs && !f.Runs {
		out = append(out, "dnsmasq does not run")
	}
	return out
}

// steps returns what leads to the wanted resolverConfig. Without the file dnsmasq has to
// forget the sets before they go; with it, it has to ask again for names that it
// knew before the sets were there (fresh), so it starts anew each time.
func (f *resolverConfig) steps(w *resolverConfig, fresh bool) []platform.Step {
	if w == nil || len(f.differences(w)) == 0 && !(fresh && w.text() != "") {
		return nil
	}
	var from conf.Set
	if f != nil {
		from = f.Files
	}
	check := func(at, temporary string) *platform.Step {
		if at != w.Path {
			return nil
		}
		return &platform.Step{Argv: []string{"dnsmasq", "--test", "--conf-file=" + temporary}}
	}
	return append(conf.Steps(from, w.Files, check), platform.Step{Argv: w.Restart})
}

// domains reports whether a rule of the plan names any.
func domains(p plan.Plan) bool { return nft.Resolver(p) != nil }

// observeResolver reads the resolverConfig of a plan that names domains, or the one that an
// earlier state knew; nil if there is neither, or no resolver that could.
func observeResolver(ctx context.Context, r platform.Runner, p plan.Plan, earlier *resolverConfig) (*resolverConfig, error) {
	f := earlier
	if f == nil {
		if !domains(p) {
			return nil, nil
		}
		found, _ := findResolver(ctx, r)
		if found == nil {
			return nil, nil
		}
		f = found
	}
	files, err := conf.Read(ctx, r, f.Path)
	if err != nil {
		return nil, fmt.Errorf("read what dnsmasq is told: %w", err)
	}
	_, err = platform.Output(ctx, r, "pidof", "dnsmasq")
	return &resolverConfig{Path: f.Path, Restart: f.Restart, Runs: err == nil, Files: files}, nil
}

// checkResolver refuses a file of our name that somebody else wrote.
func checkResolver(f *resolverConfig) error {
	if text := f.text(); text != "" && !strings.HasPrefix(text, nft.ResolverMark) {
		return &platform.PreconditionError{Doing: "have dnsmasq fill the sets of domains", What: f.Path + " is there and was not made by unbloat",
			Remedy: "rename or remove it, or leave out the rules that name domains"}
	}
	return nil
}

// findResolver looks for the dnsmasq that is the router's resolver, and says
// why there is none that can fill the sets of nftables.
func findResolver(ctx context.Context, r platform.Runner) (*resolverConfig, string) {
	out, err := platform.Output(ctx, r, "pidof", "dnsmasq")
	if err != nil {
		if _, err := platform.Output(ctx, r, "pidof", "unbound"); err == nil {
			return nil, "the resolver here is unbound, which cannot fill nftables' sets (it knows ipset alone); dnsmasq can"
		}
		return nil, "no dnsmasq runs here"
	}
	version, err := platform.Output(ctx, r, "dnsmasq", "--version")
	if err != nil || !nft.CanFill(string(version)) {
		return nil, "the dnsmasq here was built without nftset (OpenWrt: opkg install dnsmasq-full; elsewhere 2.87 or newer)"
	}
	f := &resolverConfig{Runs: true}
	for pid := range strings.FieldsSeq(string(out)) {
		line, err := platform.Output(ctx, r, "cat", "/proc/"+pid+"/cmdline")
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		config, _ := platform.Output(ctx, r, "cat", nft.ConfigFile(args))
		if dir := nft.ConfigDir(args, string(config)); dir != "" && !strings.Contains(dir, "NetworkManager") {
			f.Path = path.Join(dir, nft.ResolverName)
			break
		}
	}
	if f.Path == "" {
		return nil, "the dnsmasq here reads no directory of others' files (conf-dir=)"
	}
	for _, way := range []struct {
		proof   string
		restart []string
	}{{"/run/systemd/system", []string{"systemctl", "restart", "dnsmasq"}}, {"/etc/init.d/dnsmasq", []string{"/etc/init.d/dnsmasq", "restart"}}} {
		if _, err := platform.Output(ctx, r, "ls", "-d", way.proof); err == nil {
			f.Restart = slices.Clone(way.restart)
			return f, ""
		}
	}
	return nil, "nothing here starts dnsmasq again (neither systemd nor /etc/init.d/dnsmasq)"
}
