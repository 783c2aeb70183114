// Package paste writes a plan in the platform's own language, as a person
// pastes it into a router: commands and files, with the reason of each number
// as comments. It is pure; nothing is looked up on this machine.
package paste

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"unbloat/internal/mechanism/altq"
	"unbloat/internal/mechanism/clearos"
	"unbloat/internal/mechanism/dummynet"
	"unbloat/internal/mechanism/pfqueue"
	"unbloat/internal/mechanism/sqm"
	"unbloat/internal/mechanism/tc"
	"unbloat/internal/plan"
	"unbloat/internal/platform/all"
)

// A part is one file, or commands, of what is pasted.
type part struct {
	where string // what to do with it
	text  string
}

// Render writes the plan. The text is a comment but for what is to be pasted.
func Render(p plan.Plan) (string, error) {
	parts, notes, err := render(p)
	if err != nil {
		return "", fmt.Errorf("write the plan for %s: %w", p.Platform, err)
	}
	var b strings.Builder
	head(&b, p, notes)
	for _, part := range parts {
		b.WriteString("\n")
		comment(&b, part.where)
		b.WriteString(part.text)
	}
	return b.String(), nil
}

// render asks the platform's mechanism.
func render(p plan.Plan) (parts []part, notes []string, err error) {
	switch p.Platform {
	case "linux":
		return linux(p)
	case "openwrt":
		return openWrt(p)
	case "clearos":
		return clearOS(p)
	case "openbsd":
		return openBSD(p)
	case "openbsd-altq":
		return openBSDAltq(p)
	case "freebsd":
		return freeBSD(p)
	case "opnsense":
		return opnSense(p)
	case "pfsense":
		return pfSense(p)
	default:
		return nil, nil, fmt.Errorf("there is no such platform; use one of %s", strings.Join(all.Names(), ", "))
	}
}

// head writes the reasons and warnings as comments.
func head(b *strings.Builder, p plan.Plan, notes []string) {
	comment(b, p.Title())
	for _, r := range p.Reasons {
		if !strings.HasPrefix(r.Field, "down.") && !strings.HasPrefix(r.Field, "up.") {
			reason(b, r)
		}
	}
	for _, d := range []struct {
		name plan.Direction
		s    *plan.Shaper
	}{{plan.DirectionUp, p.Up}, {plan.DirectionDown, p.Down}} {
		if d.s == nil {
			continue
		}
		b.WriteString("#\n")
		comment(b, fmt.Sprintf("%s, on %s:", d.name, d.s.Device))
		for _, r := range p.Reasons {
			if name, ok := strings.CutPrefix(r.Field, string(d.name)+"."); ok {
				reason(b, plan.Reason{Field: name, Value: r.Value, Why: r.Why})
			}
		}
	}
	for _, w := range p.Warnings {
		b.WriteString("#\n")
		comment(b, "warning: "+w)
	}
	for _, n := range notes {
		b.WriteString("#\n")
		comment(b, "note: "+n)
	}
	if lines := difference(p); len(lines) > 0 {
		b.WriteString("#\n")
		comment(b, "This is the article's way. unbloat's own plan (without --style seed) differs in:")
		for _, line := range lines {
			wrap(b, "#   ", "#     ", line)
		}
	}
}

// difference lists how our own plan differs from one in an article's style.
func difference(p plan.Plan) []string {
	if p.Basis == nil || p.Basis.Wishes.Style != plan.StyleSeed {
		return nil
	}
	w := p.Basis.Wishes
	w.Style = plan.StyleDefault
	ours, err := plan.Make(p.Basis.Line, p.Basis.Facts, w)
	if err != nil {
		return nil
	}
	return p.Differences(ours)
}

// width is where comments are wrapped.
const width = 100

func comment(b *strings.Builder, text string) { wrap(b, "# ", "# ", text) }

func reason(b *strings.Builder, r plan.Reason) {
	wrap(b, "#   ", "#     ", fmt.Sprintf("%s = %s: %s", r.Field, r.Value, r.Why))
}

// wrap writes text in lines of at most width characters, words permitting.
func wrap(b *strings.Builder, first, rest, text string) {
	line := first
	for i, word := range strings.Fields(text) {
		if i > 0 && len([]rune(line))+1+len([]rune(word)) > width {
			b.WriteString(line + "\n")
			line = rest + word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}

// lines writes commands, one a line.
func lines(commands [][]string) string {
	var b strings.Builder
	for _, argv := range commands {
		words := make([]string, len(argv))
		for i, w := range argv {
			words[i] = shellWord(w)
		}
		b.WriteString(strings.Join(words, " ") + "\n")
	}
	return b.String()
}

// shellWord quotes a word that a shell would take apart.
func shellWord(w string) string {
	if w != "" && !strings.ContainsAny(w, " \t\n'\"\\$`|&;<>()*?[]#~{}!") {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

func openWrt(p plan.Plan) ([]part, []string, error) {
	s, notes, err := sqm.Render(p)
	if err != nil {
		return nil, nil, err
	}
	parts := []part{{"/etc/config/sqm: add this section. It needs the package sqm-scripts; with luci-app-sqm LuCI shows it. Where there is no room for them, `unbloat apply --own-tc` shapes with tc alone.", s.String()}}
	if sqm.Classed(p) {
		now, want, err := states(p)
		if err != nil {
			return nil, nil, err
		}
		at := sqm.ScriptDir + "/" + sqm.ScriptName(s.Name)
		parts = append(parts, part{"the script that the section names: the queues as `unbloat plan --for linux` has them, and the classes by nftables. " +
			"The download's take the package kmod-sched-ctinfo. Add it to /etc/sysupgrade.conf, so that it lasts over an upgrade.",
			"cat > " + at + " <<'SCRIPT'\n" + sqm.Script(p, argvs(tc.Commands(now, want))) + "SCRIPT\n"})
		if sqm.FeedPath(p) == "" {
			parts = append(parts, resolver(p, "/tmp/dnsmasq.d")...)
		}
	}
	return append(parts, part{"then:", "service sqm restart\n"}), notes, nil
}

func openBSD(p plan.Plan) ([]part, []string, error) {
	rs, notes, err := pfqueue.Render(p)
	if err != nil {
		return nil, nil, err
	}
	return []part{
		{"/etc/pf.conf: add these lines before the filter rules. No rule has to change: what no rule assigns goes to the default queue.", rs.String()},
		{"then check and load:", "pfctl -nf /etc/pf.conf && pfctl -f /etc/pf.conf\n"},
	}, notes, nil
}

func openBSDAltq(p plan.Plan) ([]part, []string, error) {
	rs, notes, err := altq.Render(p)
	if err != nil {
		return nil, nil, err
	}
	where := "the queues go before translation and filter rules. No rule has to change: what no rule assigns goes to the default queue."
	switch {
	case p.Classes == nil && len(rs.Rules) > 0:
		where = "the queues go before translation and filter rules, the pass rules among the latter. As the last rules they let through what rules before them block; the queues do without them."
	case p.Classes != nil:
		where = "the queues go before translation and filter rules, the match rules (from 4.6 on) first among the latter. They decide nothing about what passes."
	}
	return []part{
		{"/etc/pf.conf (OpenBSD to 5.4): " + where, rs.String()},
		{"then check and load:", "pfctl -nf /etc/pf.conf && pfctl -f /etc/pf.conf\n"},
	}, notes, nil
}

func freeBSD(p plan.Plan) ([]part, []string, error) {
	c, notes, err := dummynet.Render(p)
	if err != nil {
		return nil, nil, err
	}
	var persistent strings.Builder
	for _, argv := range c.Commands() {
		if argv[0] == "dnctl" {
			persistent.WriteString(strings.Join(argv[1:], " ") + "\n")
		}
	}
	return []part{
		{"now, as root. Without the first line a newly loaded ipfw denies everything, your login too; where ipfw runs already, your own rules decide.",
			"kenv net.inet.ip.fw.default_to_accept=1\nkldload -n ipfw dummynet\n"},
		{"rates are whole numbers: dnctl reads 9.5Mbit/s as 9 bit/s, and says nothing. The first ipfw rule that accepts a packet wins: if your firewall's own rules accept the WAN's before number 59001, give the rules below lower numbers; they then also decide for themselves, since what leaves a pipe is accepted (unless net.inet.ip.fw.one_pass=0).", c.String()},
		{"then read back, for dnctl exits 0 on what the kernel refuses:", "dnctl pipe show\ndnctl sched show\n"},
		{"over a reboot: /etc/dnctl.conf", persistent.String()},
		{"and /boot/loader.conf, before ipfw is loaded at boot", "net.inet.ip.fw.default_to_accept=\"1\"\n"},
		{"and /etc/rc.conf; the ipfw lines above belong into your firewall script", "dummynet_enable=\"YES\"\ndnctl_enable=\"YES\"\ndnctl_rules=\"/etc/dnctl.conf\"\n"},
	}, notes, nil
}

func opnSense(p plan.Plan) ([]part, []string, error) {
	it, notes, err := dummynet.RenderItems(p)
	if err != nil {
		return nil, nil, err
	}
	parts := []part{{"The values are those of the form in Firewall: Shaper, field by field, but for the number, which the form gives by itself; or send them to the REST API. " +
		"The uuids are unbloat's own, so sending them again changes the same items.", ""}, {numbersToCheck(it), ""}}
	add := func(where, path, key string, item any) {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(map[string]any{key: item}); err != nil {
			panic("marshal an item: " + err.Error()) // strings alone
		}
		parts = append(parts, part{where, "POST /api/trafficshaper/settings/" + path + "\n" + b.String()})
	}
	for _, x := range it.Pipes {
		add("pipe: "+x.Bandwidth+" "+x.BandwidthMetric+"/s", "setPipe/"+x.UUID, "pipe", x)
	}
	for _, x := range it.Queues {
		add("queue: weight "+x.Weight, "setQueue/"+x.UUID, "queue", x)
	}
	for _, x := range it.Rules {
		add("rule: "+strings.TrimPrefix(x.Description, "unbloat "), "setRule/"+x.UUID, "rule", x)
	}
	return append(parts, part{"then apply, and read back, for limits have been seen to stop silently after a reload:",
		"POST /api/trafficshaper/service/reconfigure\nGET /api/trafficshaper/service/statistics\n"}), notes, nil
}

// numbersToCheck says what nobody can know who has not seen the router.
func numbersToCheck(it dummynet.Items) string {
	list := func(numbers []string) string { return strings.Join(numbers, ", ") }
	var pipes, queues []string
	for _, x := range it.Pipes {
		pipes = append(pipes, x.Number)
	}
	for _, x := range it.Queues {
		queues = append(queues, x.Number)
	}
	return "The numbers (pipes " + list(pipes) + "; queues " + list(queues) + ") are those that `unbloat apply` gives on a router where nothing else has them. " +
		"OPNsense saves two pipes, or two queues, of one number without a word, and the kernel then has one for both. So look first: " +
		"GET /api/trafficshaper/settings/searchPipes and GET /api/trafficshaper/settings/searchQueues list those that are taken. " +
		"If another item has one of these, choose any that is free, from 1 to 65535; the rules name the queues by their uuids and stay as they are."
}

func pfSense(p plan.Plan) ([]part, []string, error) {
	ls, notes, err := dummynet.RenderLimiters(p, dummynet.FirstLimiter)
	if err != nil {
		return nil, nil, err
	}
	parts := []part{
		{"Firewall: Traffic Shaper: Limiters: make a limiter and its queue for each of these; the values are those of the form, and the number is for pfSense to give. " +
			"Or put them into the dnshaper section of config.xml, behind those that are there (Diagnostics: Backup & Restore), with numbers of limiters that are free; queues are numbered by pfSense in either case:", ls.String()},
	}
	rules, err := ls.Rules(p)
	if err != nil {
		return nil, nil, err
	}
	if len(rules) > 2 {
		parts, rules = append(parts, floating(rules)), nil
	}
	for _, r := range rules {
		whose := "from outside, such as to a port that is forwarded"
		if r.Direction == "out" {
			whose = "from the home"
		}
		back := ""
		if r.Out != "" {
			back = " / " + r.Out
		}
		parts = append(parts, part{"Firewall: Rules: Floating, for connections that are opened " + whose + ": action Match, interface WAN, direction " + r.Direction +
			", protocol any, In / Out pipe " + r.In + back + ", one rule for IPv4 and one for IPv6" + gatewayToo(r.Direction) + ". pf's rule then carries the numbers that pfSense gave these queues:", "# dnqueue( " + r.In + strings.Replace(back, " / ", ",", 1) + ")\n"})
	}
	return append(parts,
		part{"Connections that exist already keep what they have: Diagnostics: States: Reset States.", ""},
		part{"what pfSense makes of it, in /tmp/rules.limiter, to compare; where this has a name, there is the number that pfSense gave:", inComment(ls.RulesByName())},
		part{"and what the kernel has of that:", "dnctl pipe show\ndnctl sched show\n"}), notes, nil
}

// floating tells of the rules of classes, a line each.
func floating(rules []dummynet.LimiterRule) part {
	var b strings.Builder
	for _, r := range rules {
		end := func(e dummynet.RuleEnd) string {
			s := cmp.Or(e.Address, "any")
			if e.Port != "" {
				s += " port " + e.Port
			}
			return s
		}
		family := map[string]string{"inet": "IPv4", "inet6": "IPv6", "inet46": "IPv4+IPv6"}[r.Family]
		pipes := strings.TrimSuffix(r.In+" / "+r.Out, " / ")
		wrap(&b, "#   ", "#     ", fmt.Sprintf("%s, %s, %s, from %s to %s: %s", r.Direction, family, cmp.Or(r.Protocol, "any"), end(r.From), end(r.To), pipes))
	}
	return part{"Firewall: Rules: Floating, in this order, since the last that fits decides: action Match, interface WAN, no Quick; direction, IP version, protocol, " +
		"source and destination, and In / Out pipe as below" + gatewayToo("out") + ":", b.String()}
}

// inComment writes what is to be compared, not pasted.
func inComment(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			wrap(&b, "#   ", "#     ", line)
		}
	}
	return b.String()
}

func gatewayToo(direction string) string {
	if direction == "out" {
		return ", with the WAN's gateway chosen under Advanced, which the page demands of such a rule"
	}
	return ""
}

func clearOS(p plan.Plan) ([]part, []string, error) {
	s, notes, err := clearos.Render(p)
	if err != nil {
		return nil, nil, err
	}
	var parts []part
	if len(s.Network) > 0 {
		parts = append(parts, part{clearos.NetworkConf + ": the speeds, in kbit/s", clearos.Format(s.Network, false)})
	}
	parts = append(parts, part{clearos.QoSConf + ": set these lines and leave the others", clearos.Format(s.QoS, true)})
	if p.AQM == plan.FQCoDel {
		engine, err := clearos.Engine(devices(p), append(offloads(p), tcCommands(p)...))
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, part{clearos.EngineFile + ": an engine with an AQM, which ClearOS's own has not", engine})
	}
	return append(parts, part{"then:", "service firewall restart\n"}), notes, nil
}
