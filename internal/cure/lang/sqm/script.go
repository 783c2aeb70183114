package sqm

import (
	"fmt"
	"path"
	"strings"

	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// ScriptDir is the directory of the scripts that sections name.
const ScriptDir = "/usr/lib/sqm"

// ScriptMark is the first line of our scripts. A script without it is not ours.
const ScriptMark = "# Made by unbloat for sqm-scripts; `unbloat revert` removes it."

// ScriptName returns the name of a section's script, for a plan with classes.
func ScriptName(section string) string { return section + ".qos" }

// Classed reports whether a plan needs a script of its own: those of
// sqm-scripts give their queues no fixed handle for a BPF program or nftables' rules, and copy
// no mark on the ifb.
func Classed(p plan.Plan) bool { return p.Classes.ByBPF() || nft.Render(p, tc.OurRoot).Text != "" }

// Script writes the script of a plan with classes. commands are those for a
// router without sqm-scripts. CAKE's rates are taken from the section, so LuCI
// can change them; HTB's classes have fixed rates.
func Script(p plan.Plan, bpf Program, commands [][]string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s\n. ${SQM_LIB_DIR}/defaults.sh\n\nsqm_prepare_script() {\n\treturn 0\n}\n", ScriptMark)
	if !p.Classes.ByBPF() {
		line("# Without kmod-sched-ctinfo what arrives has no classes; it is held to its rate all the same.")
		line("sqm_unmarked() {\n\tsqm_warn \"no action ctinfo (opkg install kmod-sched-ctinfo): what arrives has no classes\"\n\t\"$@\"\n}\n")
	}
	bpf.Unjudged(&b, "sqm_warn")
	line("sqm_stop() {")
	Stop(&b, p, bpf)
	line("\treturn 0\n}\n\nsqm_start() {\n\tdo_modules\n\tfor m in act_ctinfo act_skbedit; do [ -d /sys/module/$m ] || ${INSMOD:-insmod} $m 2>/dev/null; done\n\tsqm_stop")
	bpf.Start(&b, commands, func(argv []string) {
		command := strings.Join(withRates(p, argv), " ")
		if plain := strings.Replace(command, ctinfo, "", 1); plain != command {
			command += " || sqm_unmarked " + plain
		}
		line("\t%s || return 1", command)
	})
	Start(&b, p)
	line("}")
	return b.String()
}

// unjudged is the function that a script calls where the BPF program is not there, and says
// so: the rates are held all the same.
const (
	unjudged     = "sqm_unjudged"
	unjudgedSays = "no BPF program (opkg install kmod-sched-bpf): calls are not protected by how flows behave"
)

// Unjudged writes that function, where the plan has a program; says is the command that logs.
func (x Program) Unjudged(b *strings.Builder, says string) {
	if x.Key != "" {
		fmt.Fprintf(b, "%s() {\n\t%s \"%s\"\n}\n\n", unjudged, says, unjudgedSays)
	}
}

// A Program is the BPF program of a WAN.
type Program struct {
	Key  string // its name; "": the plan has none
	Load string // what `unbloat classifier load` reads
	Pins string // where those of the WAN are pinned, as a pattern for rm(1)
}

// load writes the shell lines that load the program.
func (x Program) load(b *strings.Builder) {
	if x.Key != "" {
		fmt.Fprintf(b, "\t%s <<'END' || %s\n%sEND\n", tc.Self+" classifier load "+x.Key, unjudged, x.Load)
	}
}

// Start writes the shell lines that load the program and run a plan's commands, each as
// written by line, which is not asked for those that attach the program.
func (x Program) Start(b *strings.Builder, commands [][]string, line func(argv []string)) {
	x.load(b)
	for _, argv := range commands {
		if argv[0] == tc.Self {
			fmt.Fprintf(b, "\t%s || %s\n", strings.Join(argv, " "), unjudged)
			continue
		}
		line(argv)
	}
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
// the new one, so they also remove the download's ifb, the program, the table and dnsmasq's
// file if this plan has none.
func Stop(b *strings.Builder, p plan.Plan, bpf Program) {
	line := func(format string, args ...any) { fmt.Fprintf(b, "\t"+format+"\n", args...) }
	for _, dev := range tc.Scope(plan.Plan{WAN: p.WAN, Up: p.Up, Down: p.Down}) {
		line("tc qdisc del dev %s root 2>/dev/null", dev)
		line("tc qdisc del dev %s ingress 2>/dev/null", dev)
	}
	if p.Down == nil || p.Down.IngressOf != "" {
		line("ip link del dev %s 2>/dev/null", plan.IFBName(p.WAN))
	}
	if p.Classes.ByBPF() {
		own := tc.Program(tc.AtIngress, "", bpf.Key, 0, true) // other WANs may share the LAN; an earlier version had handle 1
		const drop = "tc filter del dev %s parent ffff: protocol all pref %d handle %s bpf 2>/dev/null"
		line(drop+"\n\t"+drop, p.Classes.LAN, own.Pref, own.Handle, p.Classes.LAN, own.Pref, "0x1")
		line("[ -n \"$(tc filter show dev %s ingress 2>/dev/null)\" ] || tc qdisc del dev %s ingress 2>/dev/null", p.Classes.LAN, p.Classes.LAN)
	}
	if bpf.Pins != "" {
		line("rm -rf %s", bpf.Pins)
	}
	line("nft delete table %s %s 2>/dev/null", nft.Family, plan.OwnName(p.WAN))
	if feed := feedPath(p); feed != "" {
		line("[ -e %s ] && rm -f %s && /etc/init.d/dnsmasq restart", feed, feed)
	}
}

// Start writes the shell lines that load a plan's table and make dnsmasq fill
// its sets.
func Start(b *strings.Builder, p plan.Plan) {
	if table := nft.Render(p, tc.OurRoot); table.Text != "" {
		fmt.Fprintf(b, "\tnft -f - <<'END' || return 1\n%sEND\n", table.Load(nft.Table{}))
	}
	if feed := FeedPath(p); feed != "" {
		// dnsmasq's directory is on a tmpfs, so the file is written at every
		// start. The restart clears its cache: names resolved before the table
		// existed are not in the sets. The file of an earlier version is for its table alone.
		fmt.Fprintf(b, "\tnft list table %s %s >/dev/null 2>&1 || rm -f %s\n", nft.Family, nft.Earlier, path.Join(path.Dir(feed), nft.EarlierFile))
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
	if !plain || !path.IsAbs(at) {
		return ""
	}
	return path.Join(path.Dir(at), nft.ResolverName(p.WAN))
}
