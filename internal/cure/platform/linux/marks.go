package linux

import (
	"context"
	"errors"
	"strings"

	"unbloat/guard"
	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// OthersMarks lists the rules of other programs that write, copy or compare bits of marks
// that classes take: those of nftables, of iptables in either form, and of policy routing.
// A program that is missing, or that fails, as for a user without the right, has none.
func OthersMarks(ctx context.Context, r platform.Runner) ([]string, error) {
	var failure error
	read := func(argv ...string) string {
		if failure != nil {
			return ""
		}
		out, err := platform.Output(ctx, r, argv...)
		if ctx.Err() != nil || errors.Is(err, platform.ErrUnreachable) || errors.Is(err, guard.ErrLate) || errors.Is(err, guard.ErrLong) {
			failure = err
		}
		return string(out)
	}
	tables, policies := map[string]string{}, map[string]string{}
	for _, tool := range []string{"iptables", "ip6tables"} {
		// Where iptables-save reads nftables, the older tables may be there too.
		tables[tool] = read(tool+"-save") + read(tool+"-legacy-save")
	}
	for _, argv := range [][]string{{"ip", "rule"}, {"ip", "-6", "rule"}} {
		policies[strings.Join(argv, " ")] = read(argv...)
	}
	return nft.Foreign(read("nft", "-s", "-t", "list", "ruleset"), tables, policies), failure
}

// CheckMarks returns an error if the plan sets marks beside rules of others that take
// the same bits.
func CheckMarks(ctx context.Context, r platform.Runner, p plan.Plan) error {
	if !p.SetsMarks() {
		return nil
	}
	list, err := OthersMarks(ctx, r)
	if err != nil || len(list) == 0 {
		return err
	}
	return &platform.PreconditionError{Doing: "divide the traffic of " + p.WAN + " into classes", What: marksTaken(list) + ", so connections could go astray", Remedy: ownMask,
		Or: &platform.Setting{Key: "classes", Value: plan.ClassesOff}}
}

const ownMask = "give these rules a mask of their own bits, as in `ct mark set ct mark and 0xff000000 or 0x1`, `CONNMARK --save-mark --nfmask 0xff --ctmask 0xff` or `ip rule add fwmark 0x1/0x00ffffff`"

func marksTaken(rules []string) string {
	return "other rules write, copy or compare bits of marks that classes take (0xff000000): " + strings.Join(rules, "; ")
}
