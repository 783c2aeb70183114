package linux

import (
	"strings"

	"unbloat/internal/cure/platform"
)

// classes checks for anything that disturbs the classification rules.
func (e *examination) classes() {
	if e.LostClasses != nil {
		if lost := e.LostClasses(e.Ctx); len(lost) > 0 {
			e.Find(platform.Finding{ID: "classes-lost", Blocking: true, What: "the rules that divide the traffic of " + e.WAN + " are not what was applied: " + strings.Join(lost, "; "),
				Why:    "calls wait with everything else; whatever runs `nft flush ruleset` (a restart of nftables.service, or a firewall that reloads so) takes them away",
				Remedy: "apply the plan again; and let the firewall delete its own tables, not all of them"})
		}
	}
	if !e.own.Judged {
		return
	}
	u := probeBPF(e.Ctx, e.Runner)
	switch {
	case u.none != "":
		e.Find(platform.Finding{ID: "no-bpf", What: "calls have a fair share of the line, but don't go first: " + u.none, Why: unjudgedMatters, Remedy: u.remedy})
	case u.slow != "":
		e.Find(platform.Finding{ID: "slow-bpf", What: "calls have a fair share of the line, but don't go first: " + u.slow, Why: unjudgedMatters, Remedy: u.remedy + "; or accept its cost: --classifier bpf"})
	default:
		return // the program sets no marks
	}
	if list, _ := OthersMarks(e.Ctx, e.Runner); len(list) > 0 {
		e.Find(platform.Finding{ID: "whole-marks", Blocking: e.classed(), What: marksTaken(list),
			Why:    "without a BPF program rules that name what arrives set marks; beside such rules connections could go another way, or be dropped, so these rules are left out",
			Remedy: ownMask})
	}
}

const unjudgedMatters = "fair queues share the line between flows, and beside a hundred of them a call's share is too small; rules of your own still work (docs/classes.md)"
