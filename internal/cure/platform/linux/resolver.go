package linux

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
)

// A resolverConfig is a WAN's file that makes the router's resolver, dnsmasq(8),
// fill the sets of rules that name domains. dnsmasq reads it at start.
type resolverConfig struct {
	Path    string   `json:"path"`
	Restart []string `json:"restart"` // command that restarts dnsmasq
	Runs    bool     `json:"runs"`
	Files   conf.Set `json:"files"`
}

// text returns the file's content; "" if there is no file.
func (f *resolverConfig) text() string {
	if f == nil {
		return ""
	}
	return f.Files.Text(f.Path)
}

// put returns the resolverConfig with this text; "" means without the file.
func (f *resolverConfig) put(text string) *resolverConfig {
	if f == nil {
		return nil
	}
	out := *f
	for _, x := range f.Files { // also what an earlier version had
		out.Files = out.Files.Without(x.Path)
	}
	if text != "" {
		out.Files = out.Files.Put(f.Path, text, "644")
	}
	return &out
}

// differences lists where f differs from the wanted w, for people.
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

// steps returns the steps to the wanted resolverConfig. Each change restarts
// dnsmasq: without the file it must forget the sets before they are removed;
// with it, it must resolve again the names it cached before the sets existed
// (fresh).
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

// domains reports whether a rule of the plan names a domain.
func domains(p plan.Plan) bool { return nft.ResolverFile(p) != "" }

// observeResolver reads the resolverConfig of a plan that names domains, or of
// an earlier state; nil if there is neither, or no suitable resolver.
func observeResolver(ctx context.Context, r platform.Runner, p plan.Plan, earlier *resolverConfig) (*resolverConfig, error) {
	f := earlier
	if f == nil && domains(p) {
		f, _ = findResolver(ctx, r, p.WAN)
	}
	if f == nil {
		return nil, nil
	}
	at, old := path.Join(path.Dir(f.Path), nft.ResolverName(p.WAN)), path.Join(path.Dir(f.Path), nft.EarlierFile)
	files, err := conf.Read(ctx, r, at, old)
	if err != nil {
		return nil, fmt.Errorf("read what dnsmasq is told: %w", err)
	}
	// An earlier version's file goes, if it is not another WAN's.
	if t := listTable(ctx, r, p.WAN, nft.Earlier); !strings.HasPrefix(files.Text(old), nft.ResolverMark) || t.Text != "" && !t.Of(p.WAN) {
		files = slices.DeleteFunc(files, func(x conf.File) bool { return strings.HasPrefix(x.Path, old) })
	}
	_, err = platform.Output(ctx, r, "pidof", "dnsmasq")
	return &resolverConfig{Path: at, Restart: f.Restart, Runs: err == nil, Files: files}, nil
}

// checkResolver returns an error if a foreign file has our name.
func checkResolver(f *resolverConfig) error {
	if text := f.text(); text != "" && !strings.HasPrefix(text, nft.ResolverMark) {
		return &platform.PreconditionError{Doing: "have dnsmasq fill the sets of domains", What: f.Path + " is there and was not made by unbloat",
			Remedy: "rename or remove it, or leave out the rules that name domains"}
	}
	return nil
}

// CheckDomains returns an error if another file beside at has dnsmasq fill sets for a domain of
// the plan, or for one above or below it: of all lines that fit a name dnsmasq takes one.
func CheckDomains(ctx context.Context, r platform.Runner, p plan.Plan, at string) error {
	if !domains(p) || at == "" {
		return nil
	}
	var fits []string
	for _, x := range p.Classes.Rules {
		for _, name := range x.Domain {
			fits = append(fits, "[/.]"+regexp.QuoteMeta(name))
			for _, above, more := strings.Cut(name, "."); more; _, above, more = strings.Cut(above, ".") {
				fits = append(fits, "/"+regexp.QuoteMeta(above))
			}
		}
	}
	out, _ := platform.Output(ctx, r, "grep", "-rlsiE", "^nftset=.*("+strings.Join(fits, "|")+")/", path.Dir(at)) // fails if there is none
	for file := range strings.FieldsSeq(string(out)) {
		if file != at && path.Base(file) != nft.EarlierFile {
			return &platform.PreconditionError{Doing: "have dnsmasq fill the sets of domains", What: file + " has it fill sets with the same names, and of those it fills one",
				Remedy: "name a domain in rules of one line alone"}
		}
	}
	return nil
}

// findResolver looks for the router's dnsmasq; if none can fill nftables sets,
// it returns the reason.
func findResolver(ctx context.Context, r platform.Runner, wan string) (*resolverConfig, string) {
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
	var strange error // any user can run a program of that name
	for pid := range strings.FieldsSeq(string(out)) {
		line, err := platform.Output(ctx, r, "cat", "/proc/"+pid+"/cmdline")
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		config, _ := platform.ReadTrusted(ctx, r, nft.ConfigFile(args))
		dir := nft.ConfigDir(args, string(config))
		if dir == "" || strings.Contains(dir, "NetworkManager") {
			continue
		}
		const root = 0
		if dir, strange = platform.TrustedDir(ctx, r, dir, root); strange == nil {
			f.Path = path.Join(dir, nft.ResolverName(wan))
			break
		}
	}
	if f.Path == "" && strange != nil {
		return nil, "the directory that the dnsmasq here reads may be somebody else's (" + strange.Error() + ")"
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
