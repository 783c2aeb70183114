// Package clearos is the driver for ClearOS routers: speeds in network.conf,
// the switch in qos.conf and, for HTB with fq_codel, our own engine file, which
// the firewall runs at every start. It implements platform.Backend.
package clearos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
	"unbloat/internal/cure/platform/linux"
)

// A Backend applies plans to one ClearOS router through Runner.
type Backend struct {
	platform.Plain
	Runner platform.Runner
}

// Observe reads the settings and the kernel's shapers.
func (b *Backend) Observe(ctx context.Context, p plan.Plan, _ platform.State) (platform.State, error) {
	files, err := conf.Read(ctx, b.Runner, clearos.NetworkConf, clearos.EngineFile, clearos.QoSConf)
	if err != nil {
		return nil, err
	}
	s := conf.State{Files: files, Scope: devices(p)}
	held, err := linux.HeldBy(ctx, b.Runner, append(devices(p), downDevice)...)
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		if h.Own || ofClearOS(h) {
			s.Facts = append(s.Facts, h.Fact())
		} else {
			s.Others = append(s.Others, h.String())
		}
	}
	return conf.Encode(s)
}

// What ClearOS's own engine makes: queues on the WAN, and for the download on a
// device of the module imq (imq0 for the first interface).
const (
	downDevice = "imq0"
	ownQueue   = "htb + sfq"
)

// ofClearOS reports whether ClearOS's own engine made h. That engine never
// removes its queues: not when it runs again with other rates (imq0 keeps the
// old ones), and not when it is switched off.
func ofClearOS(h linux.Held) bool { return h.Device == downDevice || !h.Enters && h.Queue == ownQueue }

// devices returns the devices that a plan shapes; for the download the device
// of the ingress.
func devices(p plan.Plan) []string {
	out := []string{p.WAN}
	if p.LAN != "" {
		out = append(out, p.LAN)
	}
	return out
}

// Desire returns the state that the plan asks for.
func (b *Backend) Desire(ctx context.Context, p plan.Plan, now, origin platform.State) (platform.State, error) {
	if err := platform.CheckPlan(p, Language()); err != nil {
		return nil, err
	}
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	o, err := conf.Decode(origin)
	if err != nil {
		return nil, err
	}
	set, _, err := clearos.Render(p)
	if err != nil {
		return nil, err
	}
	if err := b.check(ctx, p, s); err != nil {
		return nil, err
	}
	// From the origin, not from now: settings of an earlier plan must not stay.
	s.Files = s.Files.Put(clearos.NetworkConf, clearos.Merge(o.Files.Text(clearos.NetworkConf), set.Network, false), "")
	was, err := clearos.Parse(o.Files.Text(clearos.QoSConf))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", clearos.QoSConf, err)
	}
	set.QoS = clearos.WithOthers(set.QoS, clearos.Get(was, clearos.RulesKey))
	s.Files = s.Files.Put(clearos.QoSConf, clearos.Merge(o.Files.Text(clearos.QoSConf), set.QoS, true), "")
	s.Files, s.Facts = s.Files.Without(clearos.EngineFile), wanted(p)
	if p.AQM == plan.FQCoDel {
		shaping := p
		shaping.Offloads = nil // ClearOS's files can't restore them
		commands, err := linux.FirstCommands(shaping)
		if err != nil {
			return nil, err
		}
		engine, err := clearos.Engine(tc.Scope(plan.Plan{WAN: p.WAN, Up: p.Up, Down: p.Down}), commands)
		if err != nil {
			return nil, err
		}
		s.Files = s.Files.Put(clearos.EngineFile, engine, "644")
	}
	return conf.Encode(s)
}

// wanted returns the kernel's shapers after the engine has run.
func wanted(p plan.Plan) []conf.Fact {
	if p.AQM == plan.SFQ {
		return []conf.Fact{linux.Held{Device: p.WAN, Queue: ownQueue, Rate: tc.ShownRate(p.UpBps)}.Fact(),
			linux.Held{Device: downDevice, Queue: ownQueue, Rate: tc.ShownRate(p.DownBps)}.Fact()}
	}
	var out []conf.Fact
	line := func(h linux.Held) { h.Queue = "htb + fq_codel"; out = append(out, h.Fact()) }
	if p.Up != nil {
		line(linux.Held{Device: p.Up.Device, Rate: tc.ShownRate(p.Up.Rate)})
	}
	if p.Down != nil && p.Down.IngressOf != "" {
		line(linux.Held{Device: p.Down.IngressOf, Enters: true, Rate: tc.ShownRate(p.Down.Rate)})
	} else if p.Down != nil {
		line(linux.Held{Device: p.Down.Device, Rate: tc.ShownRate(p.Down.Rate)})
	}
	return out
}

// check returns an error if ClearOS can't do what the plan asks, or its old
// bandwidth manager is active.
func (b *Backend) check(ctx context.Context, p plan.Plan, s conf.State) error {
	if !s.Files.Get(clearos.QoSConf).Exists {
		return &platform.PreconditionError{Doing: "shape with ClearOS's QoS", What: clearos.QoSConf + " is missing", Remedy: "install the app: yum install app-qos"}
	}
	text, err := platform.Output(ctx, b.Runner, "cat", clearos.BandwidthConf)
	if err == nil {
		old, err := clearos.Parse(string(text))
		if err == nil && slices.Contains([]string{"on", "yes", "1", "true"}, clearos.Get(old, "BANDWIDTH_QOS")) {
			return &platform.PreconditionError{Doing: "shape " + p.WAN, What: "the old bandwidth manager is on (BANDWIDTH_QOS in " + clearos.BandwidthConf + "), and both would shape",
				Remedy: `set BANDWIDTH_QOS="off" there, and service firewall restart`}
		}
	}
	for _, path := range []string{clearos.NetworkConf, clearos.QoSConf} {
		if _, err := clearos.Parse(s.Files.Text(path)); err != nil {
			return &platform.PreconditionError{Doing: "read " + path, What: err.Error(), Remedy: "mend that file first", Err: err}
		}
	}
	if engine := s.Files.Text(clearos.EngineFile); engine != "" && !strings.Contains(engine, " dev "+p.WAN+" ") {
		return &platform.PreconditionError{Doing: "shape " + p.WAN, What: "unbloat shapes another WAN here already, and ClearOS runs one engine", Remedy: "run `unbloat revert` first"}
	}
	return nil
}

// keys returns the settings that our plans may change: quoted ones of qos.conf,
// and the speeds of all WANs.
func keys(text string) (quoted, plain []string) {
	quoted = []string{"QOS_ENABLE", "QOS_ENGINE", "QOS_ENABLE_IFB", "QOS_UPSTREAM", "QOS_DOWNSTREAM", "QOS_UPSTREAM_BWRES", "QOS_DOWNSTREAM_BWRES", "QOS_UPSTREAM_BWLIMIT", "QOS_DOWNSTREAM_BWLIMIT"}
	set, err := clearos.Parse(text)
	if err != nil {
		return quoted, nil
	}
	for _, x := range set {
		if strings.Contains(x.Key, "_MAX_UPSTREAM") || strings.Contains(x.Key, "_MAX_DOWNSTREAM") {
			plain = append(plain, x.Key)
		}
	}
	return quoted, plain
}

// Baseline restores our settings from origin; without it, it removes our
// engine. Lines that were changed since then stay.
func (b *Backend) Baseline(_ context.Context, now, origin platform.State) (platform.State, error) {
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	if origin == nil {
		if s.Files.Get(clearos.EngineFile).Exists {
			s.Files = s.Files.Put(clearos.QoSConf, without(s.Files.Text(clearos.QoSConf), []string{"QOS_ENGINE"}), "").Without(clearos.EngineFile)
			s.Facts = nil
		}
		return conf.Encode(s)
	}
	o, err := conf.Decode(origin)
	if err != nil {
		return nil, err
	}
	quoted, plain := keys(s.Files.Text(clearos.NetworkConf))
	if clearos.HasRules(s.Files.Text(clearos.QoSConf)) {
		quoted = append(quoted, clearos.RulesKey)
	}
	s.Files = s.Files.With(putBack(s.Files.Get(clearos.NetworkConf), o.Files.Get(clearos.NetworkConf), plain, false))
	s.Files = s.Files.With(putBack(s.Files.Get(clearos.QoSConf), o.Files.Get(clearos.QoSConf), quoted, true))
	s.Files, s.Facts = s.Files.Without(clearos.EngineFile), nil
	return conf.Encode(s)
}

// putBack returns the file now with the keys as they were. If nothing else has
// changed it returns was.
func putBack(now, was conf.File, list []string, quoted bool) conf.File {
	set, err := clearos.Parse(string(now.Content))
	if err != nil {
		return was
	}
	ours := slices.DeleteFunc(slices.Clone(set), func(x clearos.Setting) bool { return !slices.Contains(list, x.Key) })
	if !now.Exists || clearos.Merge(string(was.Content), ours, quoted) == string(now.Content) {
		return was
	}
	old, err := clearos.Parse(string(was.Content))
	if err != nil {
		return was
	}
	old = slices.DeleteFunc(old, func(x clearos.Setting) bool { return !slices.Contains(list, x.Key) })
	text := clearos.Merge(without(string(now.Content), list), old, quoted)
	return conf.File{Path: now.Path, Exists: true, Content: []byte(text)}
}

// without returns the text without the lines of these keys.
func without(text string, list []string) string {
	var b strings.Builder
	gone := false // also set for a value's continuation lines
	for line := range strings.Lines(text) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		drop := gone || slices.Contains(list, key)
		if gone = drop && strings.HasSuffix(strings.TrimSpace(line), `\`); !drop {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Compare returns the steps from actual to wanted. ClearOS's firewall does not
// remove the queues of a removed engine, so these steps do.
func (b *Backend) Compare(actual, wanted platform.State) ([]platform.Step, []string, error) {
	a, err := conf.Decode(actual)
	if err != nil {
		return nil, nil, err
	}
	w, err := conf.Decode(wanted)
	if err != nil {
		return nil, nil, err
	}
	steps, diffs, err := conf.Compare(actual, wanted, nil, nil)
	if err != nil || len(diffs) == 0 {
		return steps, diffs, err
	}
	for _, f := range a.Facts {
		// ClearOS's own engine never removes what is on its device.
		if !slices.Contains(w.Facts, f) || f.Kind == conf.Leaves && f.Of == downDevice {
			steps = append(steps, drop(f.Kind, f.Of)...)
		}
	}
	return append(steps, restart()), diffs, nil
}

func restart() platform.Step { return platform.Step{Argv: []string{"service", "firewall", "restart"}} }

// drop returns the steps that remove a device's shaper in one direction.
func drop(way conf.Kind, dev string) []platform.Step {
	if way == conf.Leaves {
		return []platform.Step{{Argv: []string{"tc", "qdisc", "del", "dev", dev, "root"}}}
	}
	steps := []platform.Step{{Argv: []string{"tc", "qdisc", "del", "dev", dev, "ingress"}}}
	if way == conf.Enters {
		steps = append(steps, platform.Step{Argv: []string{"ip", "link", "del", "dev", plan.IFBName(dev)}})
	}
	return steps
}

// Restore returns the commands that restore a snapshot from any state.
func (b *Backend) Restore(before, _ platform.State) ([]platform.Step, error) {
	s, err := conf.Decode(before)
	if err != nil {
		return nil, err
	}
	steps := s.Files.Restore()
	for _, x := range s.Scope {
		steps = append(append(steps, drop(conf.Leaves, x)...), drop(conf.Enters, x)...)
	}
	steps = append(steps, drop(conf.Leaves, downDevice)...)
	return append(steps, restart()), nil
}

// Explain turns a tool's error into one with a remedy.
func (b *Backend) Explain(err error) error {
	var missing *platform.MissingToolError
	if errors.As(err, &missing) {
		return &platform.PreconditionError{Doing: "change ClearOS's QoS", What: "there is no " + missing.Tool, Remedy: "is this a ClearOS router? choose another with --for", Err: err}
	}
	return fmt.Errorf("change ClearOS's QoS: %w", err)
}

// Flows implements platform.Backend.
func (b *Backend) Flows(ctx context.Context) ([]platform.Flow, error) {
	return linux.Carried(ctx, b.Runner)
}

// Answers implements platform.Backend.
func (b *Backend) Answers(ctx context.Context, iface string, addresses []netip.Addr) []netip.Addr {
	return linux.Answers(ctx, b.Runner, iface, addresses)
}
