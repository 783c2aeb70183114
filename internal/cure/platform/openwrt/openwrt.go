// Package openwrt is the driver for OpenWrt routers: a plan becomes a section
// of /etc/config/sqm, which LuCI shows and sqm-scripts turns into tc(8)
// commands. Without sqm-scripts package linux shapes, and Persister makes that
// survive a reboot. It implements platform.Backend.
package openwrt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/lang/uci"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
	"unbloat/internal/cure/platform/linux"
	"unbloat/unit"
)

// Paths of sqm-scripts' settings and its init script.
const (
	Config  = "/etc/config/sqm"
	Service = "/etc/init.d/sqm"
)

// A Backend applies plans to one OpenWrt router through Runner.
type Backend struct {
	platform.Plain
	Runner platform.Runner
}

// Observe reads the settings, from the file and as uci(1) has them, and the WAN's
// shapers from the kernel.
func (b *Backend) Observe(ctx context.Context, p plan.Plan, _ platform.State) (platform.State, error) {
	files, err := conf.Read(ctx, b.Runner, Config, scriptPath(p.WAN))
	if err != nil {
		return nil, err
	}
	s := conf.State{Files: files, Scope: []string{p.WAN}}
	if files.Get(Config).Exists {
		out, err := platform.Output(ctx, b.Runner, "uci", "export", "sqm")
		if err != nil {
			return nil, b.Explain(fmt.Errorf("read the settings: %w", err))
		}
		sections, err := sqm.Parse(string(out))
		if err != nil {
			return nil, fmt.Errorf("read the settings: %w", err)
		}
		unnamed := 0 // counted without ours, which comes and goes
		for _, x := range sections {
			if strings.HasPrefix(x.Name, "@") {
				x.Name = fmt.Sprintf("@%d", unnamed)
				unnamed++
			}
			s.Facts = append(s.Facts, settings(x)...)
		}
	}
	held, err := linux.HeldBy(ctx, b.Runner, p.WAN)
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		s.Facts = append(s.Facts, h.Fact())
	}
	s.Facts = append(s.Facts, classified(p.WAN, linux.ProgramsOn(ctx, b.Runner, p.WAN, plan.IFBName(p.WAN)), linux.ReadTable(ctx, b.Runner, p.WAN))...)
	return conf.Encode(s)
}

// classified is what gives classes on a WAN: the BPF program on its shapers, by its key, and
// its table.
func classified(wan, key string, t nft.Table) (out []conf.Fact) {
	if key != "" {
		out = append(out, conf.Fact{Kind: conf.Table, Of: wan, Text: "the BPF program " + key + " on its shapers"})
	}
	if t.Text != "" {
		out = append(out, conf.Fact{Kind: conf.Table, Of: wan, Text: t.Digest()})
	}
	return out
}

// scriptPath returns the path of the script of a WAN's section.
func scriptPath(wan string) string {
	return path.Join(sqm.ScriptDir, sqm.ScriptName(plan.OwnName(wan)))
}

// settings returns a section's options.
func settings(s sqm.Section) []conf.Fact {
	var out []conf.Fact
	for _, o := range s.Options {
		out = append(out, conf.Fact{Kind: conf.Option, Of: s.Name, Text: "sqm." + s.Name + "." + o.Key + "=" + o.Value})
	}
	return out
}

// without returns the file's text without the section, and whether it was there.
func without(s conf.State, name string) (rest string, there bool, err error) {
	text, section, err := uci.Cut(s.Files.Get(Config).Content, name)
	if err != nil {
		return "", false, &platform.PreconditionError{Doing: "read " + Config, What: err.Error(), Remedy: "mend that file first", Err: err}
	}
	return string(text), len(section) > 0, nil
}

// with returns the text with the section before all others. So the rest stays
// byte by byte, even if its last line has no newline.
func with(rest string, s sqm.Section) string { return s.String() + rest }

// Desire returns the state that the plan asks for.
func (b *Backend) Desire(ctx context.Context, p plan.Plan, now, _ platform.State) (platform.State, error) {
	if err := platform.CheckPlan(p, Language()); err != nil {
		return nil, err
	}
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	section, _, err := sqm.RenderAs(p, plan.OwnName(p.WAN))
	if err != nil {
		return nil, err
	}
	if err := b.checkSQM(ctx); err != nil {
		return nil, err
	}
	rest, there, err := without(s, section.Name)
	if err != nil {
		return nil, err
	}
	if err := checkForeign(p, section.Name, s, there); err != nil {
		return nil, err
	}
	script, table, err := b.classes(ctx, p, s)
	if err != nil {
		return nil, err
	}
	s.Files = s.Files.Without(scriptPath(p.WAN))
	if script != "" { // written before the section that uses it
		s.Files = s.Files.Put(scriptPath(p.WAN), script, "644")
	}
	s.Files = s.Files.Put(Config, with(rest, section), "")
	s.Facts = append(slices.DeleteFunc(s.Facts, func(f conf.Fact) bool { return ours(f, section.Name, p.WAN) }), settings(section)...)
	for _, h := range wanted(p) {
		s.Facts = append(s.Facts, h.Fact())
	}
	s.Facts = append(s.Facts, classified(p.WAN, linux.ProgramKey(p), table)...)
	return conf.Encode(s)
}

// classes returns the script and the table of a plan with classes, or an error
// if the router can't have them.
func (b *Backend) classes(ctx context.Context, p plan.Plan, s conf.State) (script string, table nft.Table, err error) {
	if old := s.Files.Text(scriptPath(p.WAN)); old != "" && !strings.HasPrefix(old, sqm.ScriptMark) {
		return "", nft.Table{}, &platform.PreconditionError{Doing: "divide the traffic of " + p.WAN + " into classes", What: scriptPath(p.WAN) + " is there and was not made by unbloat",
			Remedy: "rename or remove it"}
	}
	if !sqm.Classed(p) {
		return "", nft.Table{}, nil
	}
	table = nft.Render(p, tc.OurRoot)
	now := linux.ReadTable(ctx, b.Runner, p.WAN)
	err = cmp.Or(linux.CheckMarks(ctx, b.Runner, p), linux.CheckDomains(ctx, b.Runner, p, sqm.FeedPath(p)),
		linux.CheckTable(ctx, b.Runner, p.WAN, now, table), linux.CheckPrograms(ctx, b.Runner, p))
	if err != nil {
		return "", nft.Table{}, err
	}
	table = linux.Listed(ctx, b.Runner, now, table)
	shaping := p
	shaping.Offloads = nil // sqm-scripts can't restore them
	commands, err := linux.FirstCommands(shaping)
	if err != nil {
		return "", nft.Table{}, err
	}
	return sqm.Script(p, linux.Programs(p), commands), table, nil
}

// ours reports whether a fact comes from our section for the WAN.
func ours(f conf.Fact, section, wan string) bool {
	return f.Kind == conf.Option && f.Of == section || f.Kind != conf.Option && f.Of == wan
}

// wanted returns the kernel's shapers of the WAN after sqm-scripts has run.
func wanted(p plan.Plan) []linux.Held {
	queue, shown := "cake", func(r unit.Rate) unit.Rate { return r }
	if p.AQM == plan.FQCoDel {
		queue, shown = "htb + fq_codel", tc.ShownRate
	}
	var out []linux.Held
	if p.Up != nil {
		out = append(out, linux.Held{Device: p.WAN, Queue: queue, Rate: shown(p.Up.Rate)})
	}
	if p.Down != nil {
		out = append(out, linux.Held{Device: p.WAN, Enters: true, Queue: queue, Rate: shown(p.Down.Rate)})
	}
	return out
}

// checkSQM returns an error if sqm-scripts is missing or its settings have
// uncommitted changes.
func (b *Backend) checkSQM(ctx context.Context) error {
	var missing *platform.MissingToolError
	_, err := platform.Output(ctx, b.Runner, Service, "enabled")
	switch {
	case errors.As(err, &missing):
		return &platform.PreconditionError{Doing: "shape with sqm-scripts", What: "it is not installed", Remedy: "opkg update && opkg install luci-app-sqm, or shape without it: --own-tc", Err: err}
	case err != nil:
		return &platform.PreconditionError{Doing: "shape with sqm-scripts", What: "it does not start at boot", Remedy: Service + " enable", Err: err}
	}
	out, err := platform.Output(ctx, b.Runner, "uci", "changes", "sqm")
	if err != nil {
		return b.Explain(err)
	}
	if said := strings.TrimSpace(string(out)); said != "" {
		return &platform.PreconditionError{Doing: "change " + Config, What: "there are changes that are not saved yet: " + said, Remedy: "save or drop them: uci commit sqm, or uci revert sqm"}
	}
	return nil
}

// checkForeign returns an error if another section or program shapes the WAN.
func checkForeign(p plan.Plan, ours string, now conf.State, known bool) error {
	sections, err := sqm.Parse(now.Files.Text(Config))
	if err != nil {
		return &platform.PreconditionError{Doing: "read " + Config, What: err.Error(), Remedy: "mend that file first", Err: err}
	}
	for _, s := range sections {
		if s.Name != ours && s.Shapes(p.WAN) {
			return &platform.PreconditionError{Doing: "shape " + p.WAN, What: "the section " + s.Name + " of " + Config + " does that already",
				Remedy: "switch it off, then try again: " + s.SwitchOff()}
		}
	}
	for _, f := range now.Facts {
		if !known && f.Kind != conf.Option && f.Kind != conf.Table && f.Of == p.WAN {
			return &platform.PreconditionError{Doing: "shape " + p.WAN, What: f.Text + ", which is not from " + Config, Remedy: "stop what made it; `unbloat doctor` looks for it"}
		}
	}
	return nil
}

// Baseline removes the WAN's section; everything else stays.
func (b *Backend) Baseline(_ context.Context, now, _ platform.State) (platform.State, error) {
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	for _, wan := range s.Scope {
		name := plan.OwnName(wan)
		rest, there, err := without(s, name)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		s.Files = s.Files.Put(Config, rest, "").Without(scriptPath(wan))
		s.Facts = slices.DeleteFunc(s.Facts, func(f conf.Fact) bool { return ours(f, name, wan) })
	}
	return conf.Encode(s)
}

// Compare returns the steps from actual to wanted. A table of a name that is not wanted goes
// first, as a script removes its own alone.
func (b *Backend) Compare(actual, wanted platform.State) ([]platform.Step, []string, error) {
	steps, diffs, err := conf.Compare(actual, wanted, nil, []platform.Step{restart()})
	steps = scriptsLast(steps)
	there, _ := conf.Decode(actual) // Compare has read it
	for _, f := range there.Facts {
		words := strings.Fields(f.Text)
		if f.Kind == conf.Table && words[0] == "table" && !strings.Contains(string(wanted), strings.Join(words[:3], " ")+" ") {
			steps = append([]platform.Step{{Argv: []string{"nft", "delete", "table", nft.Family, words[2]}}}, steps...)
		}
	}
	return steps, diffs, err
}

func restart() platform.Step { return platform.Step{Argv: []string{Service, "restart"}} }

// scriptsLast moves the removal of a script into the restart step, to be done
// only if the restart succeeds and no section uses the script. sqm-scripts
// stops an instance with the script that started it. If that script is missing,
// it neither stops the instance nor starts another.
func scriptsLast(steps []platform.Step) []platform.Step {
	var first []platform.Step
	removals := ""
	for _, s := range steps {
		last := s.Argv[len(s.Argv)-1]
		switch {
		case s.Argv[0] == "rm" && strings.HasPrefix(last, sqm.ScriptDir) && strings.HasSuffix(last, ".qos"):
			// The name consists of letters, digits and underscores.
			removals += fmt.Sprintf(" && ! grep -q %s %s && rm -f %s", path.Base(last), Config, last)
		case s.Argv[0] == Service && removals != "":
			first = append(first, platform.Step{Argv: []string{"sh", "-c", Service + " restart" + removals}})
		default:
			first = append(first, s)
		}
	}
	return first
}

// Restore returns the commands that restore a snapshot from any state.
func (b *Backend) Restore(before, _ platform.State) ([]platform.Step, error) {
	s, err := conf.Decode(before)
	return scriptsLast(append(s.Files.Restore(), restart())), err
}

// Explain turns a tool's error into one with a remedy.
func (b *Backend) Explain(err error) error {
	var missing *platform.MissingToolError
	if errors.As(err, &missing) {
		return &platform.PreconditionError{Doing: "change " + Config, What: "there is no " + missing.Tool, Remedy: "is this an OpenWrt router? choose another with --for", Err: err}
	}
	return err
}

// Flows implements platform.Backend.
func (b *Backend) Flows(ctx context.Context) ([]platform.Flow, error) {
	return linux.Carried(ctx, b.Runner)
}

// Answers implements platform.Backend.
func (b *Backend) Answers(ctx context.Context, iface string, addresses []netip.Addr) []netip.Addr {
	return linux.Answers(ctx, b.Runner, iface, addresses)
}
