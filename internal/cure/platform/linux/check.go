package linux

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// checkDevices returns an error for devices that are absent, down or without
// carrier.
func (b *Backend) checkDevices(ctx context.Context, p plan.Plan, s tc.State) error {
	names := []string{}
	if p.Classes.ByBPF() {
		names = append(names, p.Classes.LAN)
	}
	for _, sh := range []*plan.Shaper{p.Down, p.Up} {
		if sh == nil {
			continue
		}
		if sh.IngressOf != "" {
			names = append(names, sh.IngressOf)
		} else {
			names = append(names, sh.Device)
		}
		if d := s.Device(sh.Device); sh.IngressOf != "" && d.Exists && d.Kind != "ifb" {
			return &platform.PreconditionError{Doing: "shape " + sh.IngressOf, What: fmt.Sprintf("%s should become an ifb, but is there already and is none", sh.Device),
				Remedy: "rename that interface"}
		}
	}
	for _, n := range names {
		d := s.Device(n)
		fail := func(what, remedy string) error {
			return &platform.PreconditionError{Doing: "shape " + n, What: what, Remedy: remedy}
		}
		switch {
		case n == "lo":
			return loopback(ctx, b.Runner)
		case !d.Exists:
			return fail("there is no such interface", "name one of "+interfaceNames(ctx, b.Runner)+" with --wan or --lan")
		case !d.Up:
			return fail("the interface is down", "bring it up with: ip link set dev "+n+" up")
		case !d.Carrier:
			return fail("the interface has no carrier", "plug in the cable or wait for the session, then try again")
		}
	}
	return nil
}

// loopback returns the error for a WAN that is the loopback interface.
func loopback(ctx context.Context, r platform.Runner) error {
	return &platform.PreconditionError{Doing: "shape lo", What: "the loopback leads to this machine itself, not to the internet",
		Remedy: "name one of " + interfaceNames(ctx, r) + " with --wan or --lan"}
}

func interfaceNames(ctx context.Context, r platform.Runner) string {
	names, err := Interfaces(ctx, r)
	if err != nil {
		return "those of `ip -br link`"
	}
	return strings.Join(names, ", ")
}

// CheckWAN returns an error if wan is no interface of the router.
func CheckWAN(ctx context.Context, r platform.Runner, wan string) error {
	names, err := Interfaces(ctx, r)
	if err != nil || slices.Contains(names, wan) {
		return err
	}
	return &platform.PreconditionError{Doing: "look at " + wan, What: "there is no such interface", Remedy: "name one of " + strings.Join(names, ", ") + " with --wan"}
}

// Aliases returns the interfaces' alternative names, each with the interface's own.
func Aliases(ctx context.Context, r platform.Runner) (map[string]string, error) {
	links, err := readLinks(ctx, r)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, l := range links {
		for _, name := range l.AltNames {
			out[name] = l.Name
		}
	}
	return out, nil
}

// fallbacks are tunnels that the kernel makes with their module. Nothing goes through
// them until somebody makes another with the same name.
var fallbacks = [...]string{"sit0", "tunl0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip6gre0", "ip_vti0", "ip6_vti0"}

// Interfaces returns the names of the router's possible WANs: all interfaces
// but lo, ifbs and those that the kernel makes by itself.
func Interfaces(ctx context.Context, r platform.Runner) ([]string, error) {
	links, err := readLinks(ctx, r)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range links {
		if l.Name != "lo" && l.Kind != "ifb" && !slices.Contains(fallbacks[:], l.Name) {
			names = append(names, l.Name)
		}
	}
	return names, nil
}

// checkChange returns an error if the change is bound to fail, before anything
// is touched.
func (b *Backend) checkChange(ctx context.Context, p plan.Plan, now, want state) error {
	if ok, known := Privileged(ctx, b.Runner); known && !ok && !b.Preview {
		return noPrivilege("shape " + p.WAN)
	}
	if err := b.rehearse(ctx, p, now.State, want.State); err != nil {
		return err
	}
	if err := b.checkPrograms(ctx, p, now.Programs, want.Programs); err != nil {
		return err
	}
	if err := b.checkTable(ctx, p, now, want); err != nil {
		return err
	}
	return b.checkRestorable(ctx, now.State, want.State)
}

func noPrivilege(doing string) error {
	return &platform.PreconditionError{Doing: doing, What: "this user may not configure the network (no CAP_NET_ADMIN)",
		Remedy: "run it as root: sudo unbloat …"}
}

// Privileged reports whether commands run with CAP_NET_ADMIN; known is false if
// /proc doesn't show it.
func Privileged(ctx context.Context, r platform.Runner) (ok, known bool) {
	out, err := platform.Output(ctx, r, "cat", "/proc/self/status")
	if err != nil {
		return false, false
	}
	const capNetAdmin = 12
	for line := range strings.Lines(string(out)) {
		if v, found := strings.CutPrefix(line, "CapEff:"); found {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return n&(1<<capNetAdmin) != 0, err == nil
		}
	}
	return false, false
}

// rehearse builds the wanted trees in a scratch namespace first and compares.
// This finds a missing module or an unsupported option before anything is
// touched. Without a scratch namespace the change itself fails and is undone.
func (b *Backend) rehearse(ctx context.Context, p plan.Plan, now, want tc.State) error {
	for _, w := range want.Devices {
		a := now.Device(w.Name)
		if w.Exists && !a.Exists {
			if have, err := Probe(ctx, b.Runner, nil, true); err == nil && !have["ifb"] {
				return missingKind("shape "+p.WAN, "ifb", nil)
			}
		}
		lost := w.Tree.Differences(a.Tree)
		if len(lost) == 0 || !slices.ContainsFunc(tc.Commands(tc.State{Devices: []tc.Device{a}}, tc.State{Devices: []tc.Device{w}}), isAdd) {
			continue // changed in place: its kinds exist already
		}
		mine := w.Tree.Ours()
		got, err := rebuildOnScratch(ctx, b.Runner, mine)
		var untried *platform.CommandError
		if errors.As(err, &untried) {
			return nil
		}
		if err != nil {
			return unread(p, err.Error())
		}
		if err := rehearsed(p, mine.OnLoopback(), got); err != nil {
			return err
		}
	}
	return nil
}

func isAdd(c tc.Command) bool { return len(c) > 2 && c[2] == "add" }

// rehearsed returns an error for what the kernel did not make of want.
func rehearsed(p plan.Plan, want, got tc.Tree) error {
	for _, q := range want.Qdiscs {
		if !slices.ContainsFunc(got.Qdiscs, func(x tc.Qdisc) bool { return x.Kind == q.Kind }) {
			return missingKind("shape "+p.WAN, q.Kind, nil)
		}
	}
	diffs := want.Differences(got)
	if len(diffs) == 0 {
		return nil
	}
	if len(got.Filters) < len(want.Filters) {
		kind := "mirred"
		if slices.ContainsFunc(want.Filters, func(f tc.Filter) bool { return slices.Contains(f.Args, "ctinfo") }) {
			kind = "ctinfo"
		}
		if slices.ContainsFunc(want.Filters, func(f tc.Filter) bool { return slices.Contains(f.Args, "skbedit") }) {
			kind = "skbedit"
		}
		return missingKind("shape "+p.WAN, kind, nil)
	}
	if parts := got.Unrebuildable(); len(parts) > 0 {
		return unread(p, strings.Join(parts, "; "))
	}
	return &platform.PreconditionError{Doing: "shape " + p.WAN, What: "this kernel or its tc(8) reads the plan differently: " + strings.Join(diffs, "; "),
		Remedy: "update them, or plan with another --aqm"}
}

// unread returns the error for a tc(8) whose output can't be read back.
func unread(p plan.Plan, what string) error {
	return &platform.PreconditionError{Doing: "shape " + p.WAN, What: "what this tc(8) prints of unbloat's own queues can't be read, so nobody could tell whether the plan is in place: " + what,
		Remedy: "install another version of iproute2, or plan with another --aqm or --side"}
}

// missingKind returns an error with the missing kernel module and how to get
// it.
func missingKind(doing, kind string, err error) error {
	module, pkg := "sch_"+kind, "kmod-sched-core"
	switch kind {
	case "cake":
		pkg = "kmod-sched-cake"
	case "ifb":
		module, pkg = "ifb", "kmod-ifb"
	case "ctinfo":
		module, pkg, kind = "act_ctinfo", "kmod-sched-ctinfo", "ctinfo action, which tells arriving packets their class"
	case "bpf":
		module, pkg, kind = "cls_bpf", "kmod-sched-bpf", "bpf filter, which gives packets their class"
	case "mirred", "skbedit", "u32":
		module, kind = "cls_u32 act_mirred act_skbedit", "filter with this action"
	case "":
		module = "for it"
	}
	e := &platform.PreconditionError{Doing: doing, What: fmt.Sprintf("the kernel has no %s (module %s)", orUnknown(kind), module),
		Remedy: fmt.Sprintf("load it with: modprobe %s (package %s on OpenWrt, linux-modules-extra on Ubuntu)", module, pkg), Err: err}
	switch module {
	case "sch_cake":
		e.Or = &platform.Setting{Key: "aqm", Value: string(plan.FQCoDel)}
	case "act_ctinfo", "cls_bpf":
		e.Or = withoutClasses()
	}
	return e
}

func orUnknown(kind string) string {
	if kind == "" {
		return "module"
	}
	return kind
}

// deviceOf returns the device of a command.
func deviceOf(argv []string) string {
	for i := 0; i+1 < len(argv); i++ {
		if argv[i] == "dev" || argv[i] == "-K" || argv[i] == "name" {
			return argv[i+1]
		}
	}
	return "the router"
}

// kindOf returns the kind of qdisc, class or device that a command creates.
func kindOf(argv []string) string {
	for _, k := range []string{"bpf", "ctinfo", "skbedit", "mirred", "fq_codel", "cake", "htb", "pfifo", "bfifo", "ifb", "ingress", "clsact", "u32", "tbf", "hfsc", "sfq", "prio"} {
		if slices.Contains(argv, k) {
			return k
		}
	}
	return ""
}
