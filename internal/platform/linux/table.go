package linux

import (
	"context"
	"errors"
	"strings"

	"unbloat/internal/lang/nft"
	"unbloat/internal/lang/tc"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
)

// A state is what is looked at, and changed, on one router: its devices, our
// table of nftables, and what its resolver is told of that.
type state struct {
	tc.State
	Table nft.Table `json:"nft,omitzero"`
	// Hidden says that who looked may not see the table: that none was found says nothing.
	Hidden   bool            `json:"nft_hidden,omitempty"`
	Resolver *resolverConfig `json:"resolver,omitempty"`
}

// ReadTable reads our table. Where nft(8) is missing, or may not say, there is
// none; what was asked for is then found missing when it is verified.
func ReadTable(ctx context.Context, r platform.Runner) nft.Table {
	out, err := platform.Output(ctx, r, listTable()...)
	if err != nil {
		return nft.Table{}
	}
	return nft.Table{Text: string(out)}
}

// LostClasses says in words where our table is not what a plan in force wants:
// whatever flushes nftables' rules takes it away, and then CAKE or HTB treat
// every flow alike. It returns nil if all is as it should be, or who asks may not see it.
func LostClasses(ctx context.Context, r platform.Runner, p plan.Plan) []string {
	if ok, known := Privileged(ctx, r); known && !ok {
		return nil
	}
	listed, want := ReadTable(ctx, r), nft.Render(p, tc.OurRoot)
	if listed.Text != "" {
		want = Listed(ctx, r, listed, want)
	}
	return nft.Differences(listed, want)
}

// Listed returns the wanted table with how the router's own nft(8) lists it, where that
// is not known and now is not equal to it: every version of nft writes some rules otherwise. It is
// loaded into a scratch namespace, as one that is there is read back. A router
// that has no unshare(1), or lets nobody use it, leaves the table as it is.
func Listed(ctx context.Context, r platform.Runner, now, want nft.Table) nft.Table {
	if want.Text == "" || len(nft.Differences(now, want)) == 0 {
		return want
	}
	script := "nft -f - && exec " + strings.Join(listTable(), " ") // of words that nobody else has a say in
	out, _, err := r.Run(ctx, []string{"unshare", "--net", "--", "sh", "-c", script}, []byte(want.Load()))
	if err != nil {
		return want // what it would have told, reading back tells
	}
	return want.ListedAs(string(out))
}

func listTable() []string {
	return []string{"nft", "-s", "-t", "list", "table", nft.Family, nft.TableIs}
}

// unknownForm says what to do where reading back found nothing wrong but the rules of
// our table, which may be right and only written in a form that nobody here knows.
func unknownForm(listed, wanted nft.Table) []string {
	if !nft.Unsure(listed, wanted) {
		return nil
	}
	return []string{"this nft(8) may list the same rules in a form that unbloat does not know, and they could not be tried in a scratch namespace to see: " +
		"install unshare (package util-linux, on OpenWrt unshare), or plan with --classes off"}
}

// steps returns what leads from actual to wanted. The queues come first: a class
// that no queue knows is an ordinary packet, a queue without classes has them all.
func steps(actual, wanted state) []platform.Step {
	var out []platform.Step
	for _, c := range tc.Commands(actual.State, wanted.State) {
		out = append(out, platform.Step{Argv: c})
	}
	table := tableSteps(actual.Table, wanted.Table)
	resolving := actual.Resolver.steps(wanted.Resolver, len(table) > 0)
	if wanted.Resolver.text() == "" {
		return append(append(out, resolving...), table...)
	}
	return append(append(out, table...), resolving...)
}

// tableSteps replaces the table in one transaction of nftables.
func tableSteps(actual, wanted nft.Table) []platform.Step {
	switch {
	case len(nft.Differences(actual, wanted)) == 0:
		return nil
	case wanted.Text == "":
		return []platform.Step{{Argv: []string{"nft", "delete", "table", nft.Family, nft.TableIs}}}
	}
	return []platform.Step{{Argv: []string{"nft", "-f", "-"}, Stdin: wanted.Load()}}
}

// checkTable asks nft(8) whether it and the kernel take the table, before
// anything is touched.
func (b *Backend) checkTable(ctx context.Context, p plan.Plan, now, want state) error {
	if b.Preview {
		return nil
	}
	return CheckTable(ctx, b.Runner, p.WAN, now.Table, want.Table)
}

// CheckTable asks nft(8) whether it and the kernel take a table that is not
// there yet.
func CheckTable(ctx context.Context, r platform.Runner, wan string, now, want nft.Table) error {
	if want.Text == "" || len(nft.Differences(now, want)) == 0 {
		return nil
	}
	_, said, err := r.Run(ctx, []string{"nft", "-c", "-f", "-"}, []byte(want.Load()))
	var missing *platform.MissingToolError
	switch {
	case errors.As(err, &missing):
		return &platform.PreconditionError{Doing: "divide the traffic of " + wan + " into classes", What: "nft(8) is not there",
			Remedy: "install the package nftables, or plan with --classes off", Err: err}
	case err != nil:
		line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
		return &platform.PreconditionError{Doing: "divide the traffic of " + wan + " into classes", What: "nft(8) or the kernel does not take the rules: " + line,
			Remedy: "it needs nftables 0.9.9 and Linux 5.11 with nf_conntrack, or plan with --classes off", Err: err}
	}
	return nil
}

// probeClasses tries whether the kernel and its tools have what classes take:
// nftables with meters, and, for downloads on an ifb, the ctinfo action. It
// returns why not, "" if they have.
func probeClasses(ctx context.Context, r platform.Runner) (why string, noMarks bool) {
	argv := []string{"unshare", "--net", "--", "nft", "--echo", "-f", "-"}
	out, said, err := r.Run(ctx, argv, []byte(nft.Sample()))
	var missing *platform.MissingToolError
	switch {
	case errors.As(err, &missing):
		return "", false // what cannot be tried is tried when it is applied
	case !strings.Contains(string(out), "update @"):
		line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
		return "classes need nftables with meters in the kernel (Linux 5.11) and nft(8) 0.9.9, which this router lacks: " + line, true
	}
	shown, err := batch(ctx, r, []string{"qdisc add dev lo handle ffff: ingress",
		"filter add dev lo parent ffff: protocol all pref 1 u32 match u32 0 0 at 0 action ctinfo cpmark 0xf000000",
		"filter show dev lo parent ffff:"})
	return "", err == nil && !strings.Contains(shown, `"kind":"ctinfo"`)
}
