package linux

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/platform"
)

// Nothing here touches the router's own devices: unshare(1) runs a command in a
// network namespace of its own. Qdiscs are tried on its loopback, and the
// namespace is gone when the command ends. Kernel and modules are the real
// ones. Results are read back; exit codes don't count.

// batch runs lines with `tc -batch` in a scratch namespace and returns the
// output. Lines that fail are skipped.
func batch(ctx context.Context, r platform.Runner, lines []string) (string, error) {
	argv := []string{"unshare", "--net", "--", "tc", "-force", "-j", "-d", "-batch", "-"}
	out, errOut, err := r.Run(ctx, argv, []byte(strings.Join(lines, "\n")+"\n"))
	if len(out) == 0 && err != nil {
		return "", &platform.CommandError{Argv: argv, Stderr: string(errOut), Err: err}
	}
	return string(out), nil
}

// Probe tests which kinds of qdisc and actions of filters the kernel really has and, if
// asked, ifb devices ("ifb"). It returns an error if the test could not run.
func Probe(ctx context.Context, r platform.Runner, kinds []string, ifb bool) (map[string]bool, error) {
	have := map[string]bool{}
	var lines []string // each kind is shown, and goes again before the next
	for _, k := range kinds {
		lines = append(append(lines, trial(k)...), "qdisc del dev lo root", "qdisc del dev lo ingress")
	}
	if len(lines) > 0 {
		out, err := batch(ctx, r, lines)
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			have[k] = strings.Contains(out, `"kind":"`+k+`"`)
		}
	}
	if ifb {
		out, _, err := r.Run(ctx, []string{"unshare", "--net", "--", "ip", "-force", "-j", "-d", "-batch", "-"},
			[]byte("link add name unbloat-probe type ifb\nlink show\n"))
		if len(out) == 0 && err != nil {
			return nil, fmt.Errorf("try an ifb device: %w", err)
		}
		have["ifb"] = strings.Contains(string(out), "unbloat-probe")
	}
	return have, nil
}

// trial are the lines that try a kind on a loopback, and show it.
func trial(kind string) []string {
	add := "qdisc add dev lo root handle 1: " + kind
	switch kind {
	case "ingress", "clsact":
		add = "qdisc add dev lo " + kind
	case "tbf": // this and the next have mandatory options
		add += " rate 1mbit burst 3000 latency 50ms"
	case "ets":
		add += " bands 3"
	case "skbedit": // it sets a packet's tin in CAKE (plan.Shaper.PacketRules)
		return []string{"qdisc add dev lo root handle 1: cake", "filter add dev lo parent 1: protocol ip pref 1 u32 match u32 0x110000 0xff0000 at 8 action skbedit priority 1:4", "filter show dev lo parent 1:"}
	case "mirred", "ctinfo":
		action := map[string]string{"mirred": "mirred egress redirect dev lo", "ctinfo": "ctinfo cpmark 0xf000000"}[kind]
		return []string{"qdisc add dev lo handle ffff: ingress", "filter add dev lo parent ffff: protocol all pref 1 u32 match u32 0 0 at 0 classid 1:1 action " + action, "filter show dev lo parent ffff:"}
	}
	return []string{add, "qdisc show dev lo"}
}

// checkRestorable tests that every foreign shaper that the change replaces can
// be restored: it is rebuilt in a scratch namespace and compared, value by
// value.
func (b *Backend) checkRestorable(ctx context.Context, now, want tc.State) error {
	for _, a := range now.Devices {
		if err := b.checkProgramsKnown(a, want.Device(a.Name)); err != nil {
			return err
		}
		parts := lasting(ctx, b.Runner, tc.Foreign(a, want.Device(a.Name)))
		if len(parts) > 0 {
			return &platform.PreconditionError{Doing: "replace the shaper on " + a.Name,
				What:   "it could not be put back exactly: " + strings.Join(parts, "; "),
				Remedy: "remove it yourself (tc qdisc del dev " + a.Name + " root, or ingress), and keep its own script to make it again"}
		}
	}
	return nil
}

// lasting says why a tree could not be made again, for people; nil if it could: it was
// rebuilt in a scratch namespace, and is the same there.
func lasting(ctx context.Context, r platform.Runner, t tc.Tree) []string {
	if parts := t.Unrebuildable(); len(parts) > 0 || t.OnLoopback().Empty() {
		return parts
	}
	got, err := rebuildOnScratch(ctx, r, t)
	if err != nil {
		return []string{"it can't be tried out: " + err.Error()}
	}
	return t.OnLoopback().Differences(got)
}

// checkProgramsKnown tests that every BPF filter that the change removes could be
// attached again. Of one on queues of our own, tc(8) alone does not say enough.
func (b *Backend) checkProgramsKnown(a, want tc.Device) error {
	for _, f := range a.Tree.Filters {
		stays := slices.ContainsFunc(want.Tree.Filters, func(w tc.Filter) bool {
			return w.Kind == f.Kind && w.Parent == f.Parent && w.Pref == f.Pref && w.Opaque == f.Opaque
		})
		if f.Kind == "bpf" && f.Opaque != "" && !stays && !b.Preview {
			return &platform.PreconditionError{Doing: "replace the BPF filters on " + a.Name,
				What:   "they could not be attached again: unbloat does not run on the router, or they are not unbloat's",
				Remedy: "run `unbloat revert` on the router itself first, or remove them yourself with tc(8)"}
		}
	}
	return nil
}

// rebuildOnScratch builds t on the loopback of a scratch namespace and reads it
// back.
func rebuildOnScratch(ctx context.Context, r platform.Runner, t tc.Tree) (tc.Tree, error) {
	var lines []string
	for _, c := range t.OnLoopback().Build("lo") {
		lines = append(lines, strings.Join(c[1:], " "))
	}
	return tc.ReadTree("lo", t.OnLoopback(), func(show ...string) ([]byte, error) {
		out, err := batch(ctx, r, slices.Concat(lines, show))
		return []byte(out), err
	})
}

// bucketsRoundUp tests whether the router's tc(8) rounds token buckets up.
func bucketsRoundUp(ctx context.Context, r platform.Runner) bool {
	out, err := batch(ctx, r, []string{tc.BucketProbe, "qdisc show dev lo"})
	if err != nil {
		return false
	}
	qs, err := tc.ParseQdiscs([]byte(out))
	return err == nil && tc.Tree{Qdiscs: qs}.RoundsUp()
}
