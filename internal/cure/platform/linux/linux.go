// Package linux is the driver for Linux routers: it reads devices with tc(8),
// ip(8) and ethtool(8), computes the commands for a plan, and checks what
// prevents it. It implements platform.Backend.
package linux

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux/bpf"
)

// A Backend applies plans to one Linux router through Runner.
type Backend struct {
	platform.Plain
	Runner platform.Runner
	// Replace allows taking over foreign shapers, after a test that they can be
	// restored.
	Replace bool
	// Preview says that nothing will be changed, so no privileges are needed.
	Preview bool
	// Exe is this program's path, for steps that load BPF programs; "": unbloat.
	Exe string
	// Remote says that the router is another machine, where this program is not.
	Remote bool
}

// Observe reads from the kernel what the plan may change: the plan's devices
// and those of an earlier state (nil if none).
func (b *Backend) Observe(ctx context.Context, p plan.Plan, earlier platform.State) (platform.State, error) {
	names := tc.Scope(p)
	withFeatures, beneath := map[string]bool{}, map[string]bool{}
	var resolver *resolverConfig
	var pinned *programs
	for _, o := range p.Offloads {
		withFeatures[o.Device], beneath[o.Device] = true, p.Beneath(o.Device)
	}
	if earlier != nil {
		s, err := decode(earlier)
		if err != nil {
			return nil, err
		}
		resolver, pinned = s.Resolver, s.Programs
		for _, d := range s.Devices {
			if !slices.Contains(names, d.Name) {
				names, beneath[d.Name] = append(names, d.Name), d.Beneath
			}
			beneath[d.Name] = beneath[d.Name] && d.Beneath // its queues were read
			if d.Features != nil {
				withFeatures[d.Name] = true
			}
		}
	}
	s, err := observe(ctx, b.Runner, names, withFeatures, beneath)
	if err != nil {
		return nil, err
	}
	s.WithoutOthers(bpf.Prefix(p.WAN))
	if resolver, err = observeResolver(ctx, b.Runner, p, resolver); err != nil {
		return nil, err
	}
	out := state{State: s, Table: ReadTable(ctx, b.Runner, p.WAN), Resolver: resolver, Programs: observePrograms(ctx, b.Runner, p, s, pinned)}
	if out.Table.Text == "" {
		ok, known := Privileged(ctx, b.Runner)
		out.Hidden = known && !ok
	}
	return encode(out)
}

// Desire checks that the plan can be applied, and returns the state that it
// asks for. It changes nothing. Errors are *platform.PreconditionError if
// something is missing and *tc.ForeignError if a foreign shaper is in the way.
func (b *Backend) Desire(ctx context.Context, p plan.Plan, now, origin platform.State) (platform.State, error) {
	s, err := decode(now)
	if err != nil {
		return nil, err
	}
	o, err := decode(origin)
	if err != nil {
		return nil, err
	}
	if err := platform.CheckPlan(p, Language()); err != nil {
		return nil, err
	}
	if err := b.checkDevices(ctx, p, s.State); err != nil {
		return nil, err
	}
	tree, err := tc.DesireAfter(p, s.State, o.State, b.Replace)
	if err != nil {
		return nil, b.orLasting(ctx, p, s.State, err)
	}
	at := cmp.Or(s.Resolver, &resolverConfig{}).Path
	if err := cmp.Or(checkResolver(s.Resolver), CheckDomains(ctx, b.Runner, p, at), CheckMarks(ctx, b.Runner, p)); err != nil {
		return nil, err
	}
	loaded := wantedPrograms(p)
	if loaded != nil {
		if loaded.Object, err = b.objectFor(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := attachPrograms(&tree, p, loaded); err != nil {
		return nil, err
	}
	want := state{State: tree, Programs: loaded, Table: Listed(ctx, b.Runner, s.Table, nft.Render(p, tc.OurRoot)), Resolver: s.Resolver.put(nft.ResolverFile(p))}
	if want.Programs == nil && s.Programs != nil {
		want.Programs = &programs{}
	}
	if want.Programs != nil {
		want.Programs.Keep = b.kept(s)
	}
	if len(b.steps(s, want)) > 0 {
		if err := b.checkChange(ctx, p, s, want); err != nil {
			return nil, err
		}
	}
	return encode(want)
}

// orLasting returns the error of a foreign shaper in the way. If it could not be taken
// over, as it could not be put back, it is the error of that: nobody is sent there.
func (b *Backend) orLasting(ctx context.Context, p plan.Plan, now tc.State, err error) error {
	var foreign *tc.ForeignError
	if ok, known := Privileged(ctx, b.Runner); !errors.As(err, &foreign) || known && !ok {
		return err
	}
	taken, without := tc.DesireAfter(p, now, now, true)
	if without != nil {
		return err
	}
	return cmp.Or(b.checkRestorable(ctx, now, taken), err)
}

// Baseline returns the state without unbloat: as in origin, and without our
// parts on devices that are not in origin.
func (b *Backend) Baseline(_ context.Context, now, origin platform.State) (platform.State, error) {
	s, err := decode(now)
	if err != nil {
		return nil, err
	}
	var o state
	if origin != nil {
		if o, err = decode(origin); err != nil {
			return nil, err
		}
	}
	without := state{State: tc.Baseline(s.State, o.State), Resolver: s.Resolver} // a table with our name is always ours
	if s.Programs != nil {
		without.Programs = &programs{}
	}
	if checkResolver(s.Resolver) == nil {
		without.Resolver = s.Resolver.put("")
	}
	return encode(without)
}

// Compare returns the steps from actual to wanted, and the differences as text
// for people; none if the states are equal.
func (b *Backend) Compare(actual, wanted platform.State) ([]platform.Step, []string, error) {
	a, err := decode(actual)
	if err != nil {
		return nil, nil, err
	}
	w, err := decode(wanted)
	if err != nil {
		return nil, nil, err
	}
	diffs := append(tc.Differences(a.State, w.State), nft.Differences(a.Table, w.Table)...)
	diffs = append(diffs, a.Resolver.differences(w.Resolver)...)
	diffs = append(diffs, programDifferences(a.Programs, w.Programs)...)
	if len(diffs) == len(nft.Differences(a.Table, w.Table)) { // nothing else differs
		diffs = append(diffs, unknownForm(a.Table, w.Table)...)
	}
	return b.steps(a, w), diffs, nil
}

// Explain turns a failed command's error into one with a remedy.
func (b *Backend) Explain(err error) error {
	var c *platform.CommandError
	if !errors.As(err, &c) {
		return err
	}
	said := c.Stderr
	unknown := strings.Contains(said, "qdisc kind is unknown") || strings.Contains(said, "Unknown qdisc") ||
		strings.Contains(said, "Failed to load TC action module") || strings.Contains(said, "No such file or directory") || strings.Contains(said, "Operation not supported")
	switch {
	case strings.Contains(said, "Operation not permitted"):
		return noPrivilege("change " + deviceOf(c.Argv))
	case unknown:
		return missingKind("run `"+strings.Join(c.Argv, " ")+"`", kindOf(c.Argv), err)
	case strings.Contains(said, "Cannot find device") || strings.Contains(said, "No such device"):
		return &platform.PreconditionError{Doing: "change " + deviceOf(c.Argv), What: "the interface went away while it was being changed",
			Remedy: "wait until it is up and stays up (ip -br link), then try again", Err: err}
	}
	return err
}

// readLinks reads all network devices.
func readLinks(ctx context.Context, r platform.Runner) ([]tc.Link, error) {
	out, err := platform.Output(ctx, r, "ip", "-j", "-d", "link", "show")
	if err != nil {
		return nil, toolError("read the interfaces", "ip", "iproute2 (ip-full on OpenWrt)", err)
	}
	links, err := tc.ParseLinks(out)
	if err != nil {
		return nil, fmt.Errorf("read the interfaces: %w", err)
	}
	for i, l := range links {
		if l.Kind == "ppp" { // which session is whose can't be read
			sessions, _ := platform.Output(ctx, r, "cat", "/proc/net/pppoe")
			links[i].Below = append(l.Below, tc.ParsePPPoE(sessions)...)
		}
	}
	return links, nil
}

func observe(ctx context.Context, r platform.Runner, names []string, withFeatures, beneath map[string]bool) (tc.State, error) {
	links, err := readLinks(ctx, r)
	if err != nil {
		return tc.State{}, err
	}
	var s tc.State
	for _, name := range names {
		d := tc.Device{Name: name}
		for _, l := range links {
			if l.Name == name {
				d = tc.Device{Name: name, Exists: true, Kind: l.Kind, Up: l.Up, Carrier: l.Carrier, MTU: l.MTU}
			}
		}
		d.Beneath = beneath[name]
		if d.Exists {
			if err := observeDevice(ctx, r, &d, withFeatures[name]); err != nil {
				return tc.State{}, err
			}
		}
		s.Devices = append(s.Devices, d)
	}
	return s, nil
}

func observeDevice(ctx context.Context, r platform.Runner, d *tc.Device, withFeatures bool) (err error) {
	if !d.Beneath {
		if d.Tree, err = ReadTree(ctx, r, d.Name); err != nil {
			return err
		}
	}
	if d.Tree.ForeignBuckets() && bucketsRoundUp(ctx, r) {
		d.Tree.SayBuckets()
	}
	if d.Kind != "ifb" && !d.Beneath { // ports come and go
		if b, err := platform.Output(ctx, r, "cat", "/sys/class/net/"+d.Name+"/carrier_changes"); err == nil {
			d.Flaps, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
	}
	if !withFeatures {
		return nil
	}
	out, err := platform.Output(ctx, r, "ethtool", "-k", d.Name)
	if err != nil {
		return toolError("read the offloads of "+d.Name, "ethtool", "ethtool", err)
	}
	d.Features = tc.ParseFeatures(out)
	return nil
}

// ReadTree reads the qdiscs, classes and filters of one device.
func ReadTree(ctx context.Context, r platform.Runner, dev string) (tc.Tree, error) {
	t, err := tc.ReadTree(dev, tc.Tree{}, func(lines ...string) (out []byte, err error) {
		if len(lines) > 1 && !strings.ContainsAny(dev, `#"'\`) { // to a batch they mean something
			return platform.OutputOf(ctx, r, []byte(strings.Join(lines, "\n")+"\n"), "tc", "-j", "-d", "-batch", "-")
		}
		for _, line := range lines {
			more, err := platform.Output(ctx, r, append([]string{"tc", "-j", "-d"}, strings.Fields(line)...)...)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		return out, nil
	})
	if err != nil {
		return t, toolError("read the queues of "+dev, "tc", "iproute2 (tc-tiny or tc-full on OpenWrt)", err)
	}
	if t.HasPrograms() {
		t.KnowPrograms(readPrograms(ctx, r, dev))
		t.KnowObjects(bpf.Known)
	}
	return t, nil
}

func toolError(doing, tool, pkg string, err error) error {
	var missing *platform.MissingToolError
	if errors.As(err, &missing) {
		return &platform.PreconditionError{Doing: doing, What: tool + "(8) is not there",
			Remedy: "install the package " + pkg + ", or put it into PATH", Err: err}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func decode(b platform.State) (s state, err error) {
	if err = json.Unmarshal(b, &s); err != nil {
		err = fmt.Errorf("read the state of a Linux router: %w", err)
	}
	return s, err
}

func encode(s state) (platform.State, error) { return json.Marshal(s) }
