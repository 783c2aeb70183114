package linux

import (
	"context"
	"errors"
	"strings"

	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// A state is everything that is read and changed for one WAN: its devices,
// its nftables table and the resolver's configuration for it.
type state struct {
	tc.State
	Table nft.Table `json:"nft,omitzero"`
	// Hidden says that this user can't read the table: an empty Table then
	// means unknown.
	Hidden   bool            `json:"nft_hidden,omitempty"`
	Resolver *resolverConfig `json:"resolver,omitempty"`
	Programs *programs       `json:"bpf,omitempty"`
}

// ReadTable reads a WAN's table; it is empty if nft(8) is missing or fails.
// Verification then reports the wanted table as missing. Without a table of its own it is that
// of an earlier version, if that one was for this WAN.
func ReadTable(ctx context.Context, r platform.Runner, wan string) nft.Table {
	if t := listTable(ctx, r, wan, plan.OwnName(wan)); t.Text != "" {
		return t
	}
	if t := listTable(ctx, r, wan, nft.Earlier); t.Of(wan) {
		return t
	}
	return nft.Table{WAN: wan}
}

func listTable(ctx context.Context, r platform.Runner, wan, name string) nft.Table {
	out, err := platform.Output(ctx, r, strings.Fields(listing+name)...)
	if err != nil {
		return nft.Table{WAN: wan}
	}
	return nft.Table{WAN: wan, Text: string(out)}
}

// LostClasses lists where the WAN's table differs from what an applied plan wants,
// for people: a flush of nftables' rules removes it, and then what rules name is
// treated as all else. It returns nil if nothing differs or this user can't read
// the table.
func LostClasses(ctx context.Context, r platform.Runner, p plan.Plan) []string {
	if ok, known := Privileged(ctx, r); known && !ok {
		return nil
	}
	listed, want := ReadTable(ctx, r, p.WAN), nft.Render(p, tc.OurRoot)
	if listed.Name() == nft.Earlier { // it does the same
		want.Text = strings.Replace(want.Text, want.Name(), nft.Earlier, 1)
	}
	if listed.Text != "" {
		want = Listed(ctx, r, listed, want)
	}
	return append(lostPrograms(ctx, r, p), nft.Differences(listed, want)...)
}

// lostPrograms says on which shapers the program of a plan's classes is not any more.
func lostPrograms(ctx context.Context, r platform.Runner, p plan.Plan) (lost []string) {
	key := ProgramKey(p)
	for _, s := range []*plan.Shaper{p.Up, p.Down} {
		if key != "" && s != nil && ProgramsOn(ctx, r, s.Device) != key {
			lost = append(lost, s.Device+": the BPF program that judges how flows behave is not on its queue")
		}
	}
	return lost
}

// Listed returns the wanted table with its listing by the router's own nft(8),
// if now differs from it and the listing is not known yet: every version of nft
// lists some rules differently. The table is loaded into a scratch namespace
// and read back. Where unshare(1) is missing or not permitted, want is returned
// unchanged.
func Listed(ctx context.Context, r platform.Runner, now, want nft.Table) nft.Table {
	if want.Text == "" || len(nft.Differences(now, want)) == 0 {
		return want
	}
	script := "nft -f - && exec " + listing + want.Name() // words of letters, digits and underscores
	out, _, err := r.Run(ctx, []string{"unshare", "--net", "--", "sh", "-c", script}, []byte(want.Load(now)))
	if err != nil {
		return want // an error here shows up again in the readback
	}
	return want.ListedAs(string(out))
}

// listing is the command that lists the table that is named behind it.
const listing = "nft -s -t list table " + nft.Family + " "

// unknownForm returns what to do if the readback differs only in our table's
// rules, which may be right but listed in an unknown form.
func unknownForm(listed, wanted nft.Table) []string {
	if !nft.Unsure(listed, wanted) {
		return nil
	}
	return []string{"this nft(8) may list the same rules in a form that unbloat does not know, and they could not be tried in a scratch namespace to see: " +
		"install unshare (package util-linux, on OpenWrt unshare), or plan without classes"}
}

// steps returns the steps from actual to wanted. Queues come first; any order
// is safe: packets with an unknown class are ordinary ones, and queues without
// a table treat all alike.
func (b *Backend) steps(actual, wanted state) []platform.Step {
	out := loadPrograms(b.exe(), actual.Programs, wanted.Programs)
	out = append(out, b.queueSteps(tc.Commands(actual.State, wanted.State))...)
	out = append(out, dropPrograms(actual.Programs, wanted.Programs)...)
	table := tableSteps(actual.Table, wanted.Table)
	resolving := actual.Resolver.steps(wanted.Resolver, len(table) > 0)
	if wanted.Resolver.text() == "" {
		return append(append(out, resolving...), table...)
	}
	return append(append(out, table...), resolving...)
}

// queueSteps are the steps that run commands of package tc.
func (b *Backend) queueSteps(commands []tc.Command) []platform.Step {
	var out []platform.Step
	for _, c := range commands {
		if c[0] == tc.Self {
			c = append(tc.Command{b.exe()}, c[1:]...)
		}
		out = append(out, platform.Step{Argv: c})
	}
	return out
}

// tableSteps replaces the table in one transaction of nftables.
func tableSteps(actual, wanted nft.Table) []platform.Step {
	switch {
	case len(nft.Differences(actual, wanted)) == 0:
		return nil
	case wanted.Text == "":
		return []platform.Step{{Argv: []string{"nft", "delete", "table", nft.Family, actual.Name()}}}
	}
	return []platform.Step{{Argv: []string{"nft", "-f", "-"}, Stdin: wanted.Load(actual)}}
}

// checkTable tests whether nft(8) and the kernel accept the table, before
// anything is touched.
func (b *Backend) checkTable(ctx context.Context, p plan.Plan, now, want state) error {
	if b.Preview {
		return nil
	}
	return CheckTable(ctx, b.Runner, p.WAN, now.Table, want.Table)
}

// CheckTable tests with nft(8) whether the kernel accepts a table that does not
// exist yet.
func CheckTable(ctx context.Context, r platform.Runner, wan string, now, want nft.Table) error {
	if want.Text == "" || len(nft.Differences(now, want)) == 0 {
		return nil
	}
	_, said, err := r.Run(ctx, checkRules(), []byte(want.Load(now)))
	var missing *platform.MissingToolError
	line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	switch {
	case want.IsShortWay() && err != nil:
		return &platform.PreconditionError{Doing: "carry connections of " + wan + " by a flow table", What: "nft(8) or the kernel does not take it: " + line,
			Remedy: "it needs nftables and Linux 4.16 with nf_flow_table_inet and nft_flow_offload (OpenWrt: kmod-nft-offload); or plan without --flow-table", Err: err}
	case errors.As(err, &missing):
		return &platform.PreconditionError{Doing: "divide the traffic of " + wan + " into classes", What: "nft(8) is not there",
			Remedy: "install the package nftables", Or: withoutClasses(), Err: err}
	case err != nil:
		return &platform.PreconditionError{Doing: "divide the traffic of " + wan + " into classes", What: "nft(8) or the kernel does not take the rules: " + line,
			Remedy: "it needs nftables 0.9.9 and Linux 5.11 with nf_conntrack; or leave out the rules", Or: withoutClasses(), Err: err}
	}
	return nil
}

// withoutClasses is the setting for a router that can't have classes.
func withoutClasses() *platform.Setting {
	return &platform.Setting{Key: "classes", Value: plan.ClassesOff}
}

// probeClasses tests whether kernel and tools support classes: nftables with
// meters and, for downloads on an ifb, the ctinfo action. It returns why not,
// "" if they do. have is what Probe has found. Where there is no unshare(1), nft(8) checks
// rules without loading them, and the ctinfo action is there if its module is.
func probeClasses(ctx context.Context, r platform.Runner, have map[string]bool) (why string, noMarks bool) {
	argv := []string{"unshare", "--net", "--", "nft", "--echo", "-f", "-"}
	out, said, err := r.Run(ctx, argv, []byte(nft.Sample().Text))
	taken := strings.Contains(string(out), "update @")
	var missing *platform.MissingToolError
	alone := errors.As(err, &missing)
	if alone {
		if ok, known := Privileged(ctx, r); known && !ok {
			return "", false // this user can't tell: apply will
		}
		_, said, err = r.Run(ctx, checkRules(), []byte(nft.Sample().Load(nft.Table{})))
		if taken = err == nil; errors.As(err, &missing) {
			said = []byte("there is no nft(8)")
		}
	}
	if !taken {
		line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
		return "classes need nftables with meters in the kernel (Linux 5.11) and nft(8) 0.9.9, which this router lacks: " + line, true
	}
	if alone {
		found, _ := platform.Output(ctx, r, "find", "/lib/modules", "/sys/module", "-name", "act_ctinfo*") // fails if one of them is not there
		return "", len(found) == 0
	}
	return "", have != nil && !have["ctinfo"]
}

// checkRules is the command that checks rules, and loads none.
func checkRules() []string { return []string{"nft", "-c", "-f", "-"} }
