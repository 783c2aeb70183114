package freebsd

import (
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Render writes commands of dnctl(8) and ipfw(8), and the files that restore
// them at boot.
func Render(p plan.Plan) ([]platform.PlanPart, []string, error) {
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
	return []platform.PlanPart{
		{Where: "now, as root. Without the first line a newly loaded ipfw denies everything, your login too; where ipfw runs already, your own rules decide.",
			Text: "kenv net.inet.ip.fw.default_to_accept=1\nkldload -n ipfw dummynet\n"},
		{Where: "rates are whole numbers: dnctl reads 9.5Mbit/s as 9 bit/s, and says nothing. The first ipfw rule that accepts a packet wins: if your firewall's own rules accept the WAN's before number 59001, give the rules below lower numbers; they then also decide for themselves, since what leaves a pipe is accepted (unless net.inet.ip.fw.one_pass=0).", Text: c.String()},
		{Where: "then read back, for dnctl exits 0 on what the kernel refuses:", Text: "dnctl pipe show\ndnctl sched show\n"},
		{Where: "over a reboot: /etc/dnctl.conf", Text: persistent.String()},
		{Where: "and /boot/loader.conf, before ipfw is loaded at boot", Text: "net.inet.ip.fw.default_to_accept=\"1\"\n"},
		{Where: "and /etc/rc.conf; the ipfw lines above belong into your firewall script", Text: "dummynet_enable=\"YES\"\ndnctl_enable=\"YES\"\ndnctl_rules=\"/etc/dnctl.conf\"\n"},
	}, notes, nil
}
