package linux

import (
	"regexp"
	"slices"
	"strings"

	"unbloat/internal/platform"
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
	if whole := wholeMarks(e.ruleset, e.Read("iptables-save", "-t", "mangle"), e.Read("ip6tables-save", "-t", "mangle")); len(whole) > 0 {
		e.Find(platform.Finding{ID: "whole-marks", What: "other rules write or copy the whole mark of connections: " + strings.Join(whole, "; "),
			Why:    "unbloat's classes keep what they know in its upper eight bits (0xff000000), so it is lost, or a mark that is compared as a whole fits no more",
			Remedy: "give these rules a mask of their own bits, as in `ct mark set ct mark and 0xff000000 or 0x1` or `CONNMARK --save-mark --nfmask 0xff --ctmask 0xff`"})
	}
}

var (
	setsWhole = regexp.MustCompile(`ct mark set (0x[0-9a-f]+|\d+|meta mark|mark)\b|meta mark set ct mark\b`)
	isMasked  = regexp.MustCompile(`ct mark set (meta )?mark (and|&|or|\|)|meta mark set ct mark (and|&|or|\|)`)
	inTables  = regexp.MustCompile(`-j CONNMARK --(set-mark|set-xmark|save-mark|restore-mark)`)
)

// wholeMarks returns foreign rules that write or copy a connection's whole
// mark. ruleset is output of nft(8), saved that of iptables-save(8).
func wholeMarks(ruleset string, saved ...string) []string {
	var out []string
	add := func(rule string) {
		if rule = strings.TrimSpace(rule); !slices.Contains(out, rule) {
			out = append(out, rule)
		}
	}
	ours := false
	for line := range strings.Lines(ruleset) {
		if strings.HasPrefix(line, "table ") {
			ours = strings.HasPrefix(line, "table inet unbloat ")
		}
		if !ours && setsWhole.MatchString(line) && !isMasked.MatchString(line) {
			add(line)
		}
	}
	for _, text := range saved {
		for line := range strings.Lines(text) {
			masked := strings.Contains(line, "mask 0x") || strings.Contains(line, "/0x") && !strings.Contains(line, "/0xffffffff")
			if strings.HasPrefix(line, "-A ") && inTables.MatchString(line) && (!masked || strings.Contains(line, "mask 0xffffffff")) {
				add(line)
			}
		}
	}
	return out
}
