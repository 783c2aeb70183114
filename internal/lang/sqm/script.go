package sqm

import (
	"fmt"
	"path"
	"strings"

	"unbloat/internal/lang/nft"
	"unbloat/internal/lang/tc"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// ScriptDir is the directory of the scripts that sections name.
const ScriptDir = "/usr/lib/sqm"

// ScriptMark is the first line of our scripts. A script without it is not ours.
const ScriptMark = "# Made by unbloat for sqm-scripts; `unbloat revert` removes it."

// ScriptName returns the name of a section's script, for a plan with classes.
func ScriptName(section string) string { return section + ".qos" }

// Classed reports whether a plan needs a script of its own: those of
// sqm-scripts give their queues no fixed handle for nftables' rules, and copy
// no mark on the ifb.
func Classed(p plan.Plan) bool { return nft.Render(p, tc.OurRoot).Text != "" }

// Script writes the script of a plan with classes. commands are those for a
// router without sqm-scripts. CAKE's rates are taken from the section, so LuCI
// can change them; HTB's classes have fixed rates.
func Script(p plan.Plan, commands [][]string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s\n. ${SQM_LIB_DIR}/defaults.sh\n\nsqm_prepare_script() {\n\treturn 0\n}\n", ScriptMark)
	line("# Without kmod-sched-ctinfo what arrives has no classes; it is held to its rate all the same.")
	line("sqm_unmarked() {\n\tsqm_warn \"no action ctinfo (opkg install kmod-sched-ctinfo): what arrives has no classes\"\n\t\"$@\"\n}\n")
	line("sqm_stop() {")
	Stop(&b, p)
	line("\treturn 0\n}\n\nsqm_start() {\n\tdo_modules\n\tfor m in act_ctinfo act_skbedit; do [ -d /sys/module/$m ] || ${INSMOD:-insmod} $m 2>/dev/null; done\n\tsqm_stop")
	for _, argv := range commands {
		command := strings.Join(withRates(p, argv), " ")
		if plain := strings.Replace(command, ctinfo, "", 1); plain != command {
			command += " || sqm_unmarked " + plain
		}
		line("\t%s || return 1", command)
	}
	Start(&b, p)
	line("}")
	return b.String()
}

// ctinfo is the action on the redirect that copies the connection's mark to the
// packet.
const ctinfo = "action ctinfo cpmark 0xf000000 "

// withRates replaces CAKE's rate with sqm-scripts' variables.
func withRates(p plan.Plan, argv []string) []string {
	out := append([]string(nil), argv...)
	for i := 1; i < len(out)-1; i++ {
		if out[i] != "bandwidth" {
			continue
		}
		for _, d := range []struct {
			s    *plan.Shaper
			name string
		}{{p.Up, "UPLINK"}, {p.Down, "DOWNLINK"}} {
			if d.s != nil && d.s.Device == argv[4] && out[i+1] == fmt.Sprintf("%dkbit", int64(d.s.Rate/unit.KbitPerSecond)) {
				out[i+1] = "${" + d.name + "}kbit"
			}
		}
	}
	return out
}

// Stop writes the shell lines that remove everything a plan's commands and
// table create; each may fail. sqm-scripts stops an old plan with the script of
// the new one, so they also remove the download's ifb, the table and dnsmasq's
// file if this plan has none.
func Stop(b *strings.Builder, p plan.Plan) {
	line := func(format string, args ...any) { fmt.Fprintf(b, "\t"+format+"\n", args...) }
	for _, dev := range tc.Scope(plan.Plan{WAN: p.WAN, Up: p.Up, Down: p.Down}) {
		line("tc qdisc del dev %s root 2>/dev/null", dev)
		line("tc qdisc del dev %s ingress 2>/dev/null", dev)
	}
	if p.Down == nil || p.Down.IngressOf != "" {
		line("ip link del dev %s 2>/dev/null", plan.IFBName(p.WAN))
	}
	if Classed(p) {
		line("nft delete table %s %s 2>/dev/null", nft.Family, nft.TableIs)
	}
	if feed := feedPath(p); feed != "" {
		line("[ -e %s ] && rm -f %s && /etc/init.d/dnsmasq restart", feed, feed)
	}
}

// Start writes the shell lines that load a plan's table and make dnsmasq fill
// its sets.
func Start(b *strings.Builder, p plan.Plan) {
	if table := nft.Render(p, tc.OurRoot); table.Text != "" {
		fmt.Fprintf(b, "\tnft -f - <<'END' || return 1\n%sEND\n", table.Load())
	}
	if feed := FeedPath(p); feed != "" {
		// dnsmasq's directory is on a tmpfs, so the file is written at every
		// start. The restart clears its cache: names resolved before the table
		// existed are not in the sets.
		fmt.Fprintf(b, "\tcat > %s <<'END'\n%sEND\n\t/etc/init.d/dnsmasq restart\n", feed, nft.ResolverFile(p))
	}
}

// FeedPath returns the path of our dnsmasq file, which fills the sets of rules
// that name domains; "" if the plan has none, or the resolver's configuration
// is not such a file.
func FeedPath(p plan.Plan) string {
	if nft.ResolverFile(p) == "" {
		return ""
	}
	return feedPath(p)
}

// feedPath returns the path from the plan's capabilities; "" if it is not safe
// in a shell script or not a file of ours.
func feedPath(p plan.Plan) string {
	if p.Basis == nil {
		return ""
	}
	at := p.Basis.Capabilities.Resolver
	plain := !strings.ContainsFunc(at, func(c rune) bool { return strings.ContainsRune(" '\"\\$`;|&<>()*?\n", c) })
	if !plain || path.Base(at) != nft.ResolverName || !path.IsAbs(at) {
		return ""
	}
	return at
}
