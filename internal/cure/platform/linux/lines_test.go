package linux_test

import (
	"strings"
	"testing"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
)

// twoLines is a router with two lines, a PPPoE session and tunnels, and the default
// routes that ip(8) of iproute2 6.1 printed of them.
func twoLines(four, six string) *linuxfake.Kernel {
	k := linuxfake.New()
	for _, d := range []*linuxfake.Device{
		{Name: "line1"}, {Name: "line2", Kind: "veth", Link: "wan"}, {Name: "ppp0", Kind: "ppp"}, {Name: "ds0", Kind: "ip6tnl", Link: "line1"},
		{Name: "ds1", Kind: "ip6tnl"}, {Name: "six0", Kind: "sit", Link: "line2"}, {Name: "tun0", Kind: "tun"}, {Name: "wg0", Kind: "wireguard"},
	} {
		d.Up, d.MTU = true, 1500
		k.Devices = append(k.Devices, d)
	}
	k.PPPoE = "Id       Address              Device\n00000001 02:00:00:00:00:01    line1\n"
	k.Routes = map[string]string{"-4": "[" + four + "]", "-6": "[" + six + "]",
		"nexthop": `[{"id":1,"gateway":"192.0.1.1","dev":"line1","scope":"link","flags":[]},{"id":2,"gateway":"192.0.2.1","dev":"line2","scope":"link","flags":[]},{"id":3,"group":[{"id":1},{"id":2}],"flags":[]},{"id":4,"blackhole":null,"flags":[]}]`}
	return k
}

const (
	byLine1 = `{"dst":"default","gateway":"192.0.1.1","dev":"line1","flags":[]}`
	byLine2 = `{"dst":"default","gateway":"192.0.2.1","dev":"line2","metric":70,"flags":[]}`
	byBoth  = `{"dst":"default","flags":[],"nexthops":[{"gateway":"192.0.1.1","dev":"line1","weight":1,"flags":[]},{"gateway":"192.0.2.1","dev":"line2","weight":1,"flags":[]}]}`
	nowhere = `{"type":"unreachable","dst":"default","dev":"lo","metric":4294967295,"flags":[],"pref":"medium"}`
	six1    = `{"dst":"default","gateway":"fe80::1","dev":"line1","protocol":"ra","metric":1024,"flags":[],"pref":"medium"}`
	six2    = `{"dst":"default","gateway":"fe80::1","dev":"line2","protocol":"ra","metric":1024,"flags":[],"pref":"medium"}`
)

// TestWhichLine: the line is found by default routes of both families, whatever their
// form. Of a tunnel it is the line below. Where there are several, they are named.
func TestWhichLine(t *testing.T) {
	for _, c := range []struct {
		name, four, six string
		want            string // one line, or what the error names
	}{
		{"IPv4", byLine1, "", "line1"},
		{"IPv6 alone", "", six2, "line2"},
		{"both families", byLine1, six1 + "," + nowhere, "line1"},
		{"a family each", byLine1, six2, "--wan line1 --wan line2 IPv6"},
		{"next hops", byBoth, "", "--wan line1 --wan line2"},
		{"next hops of IPv6", "", `{"dst":"default","metric":1024,"flags":[],"pref":"medium","nexthops":[{"gateway":"2001:db8:1::1","dev":"line1","weight":1,"flags":[]},{"gateway":"2001:db8:2::1","dev":"line2","weight":1,"flags":[]}]}`, "--wan line1 --wan line2"},
		{"next hops, one without carrier", strings.Replace(byBoth, `"flags":[]}]`, `"flags":["dead","linkdown"]}]`, 1), "", "line1"},
		{"next hops by one line", strings.Replace(byBoth, "line2", "line1", 1), "", "line1"},
		{"an object's", `{"dst":"default","nhid":1,"gateway":"192.0.1.1","dev":"line1","flags":[]}`, "", "line1"},
		{"an object's, by number", `{"dst":"default","nhid":2,"flags":[]}`, "", "line2"},
		{"a group's, by number", `{"dst":"default","nhid":3,"flags":[]}`, "", "--wan line1 --wan line2"},
		{"an object's that leads nowhere", `{"type":"blackhole","dst":"default","nhid":4,"metric":7,"flags":[]},` + byLine2, "", "line2"},
		{"unreachable first", `{"type":"unreachable","dst":"default","metric":5,"flags":[]},` + byLine2, nowhere, "line2"},
		{"by metric", byLine2 + "," + byLine1, "", "line1"},
		{"without carrier first", strings.Replace(byLine1, "[]", `["linkdown"]`, 1) + "," + byLine2, "", "line2"},
		{"without carrier", strings.Replace(byLine1, "[]", `["dead","linkdown"]`, 1), "", "line1"},
		{"of a type of service", `{"dst":"default","tos":"0x10","gateway":"192.0.2.1","dev":"line2","metric":0,"flags":[]},` + byLine1, "", "line1"},
		{"of a source", "", `{"dst":"default","from":"2001:db8:1::/64","gateway":"2001:db8:1::1","dev":"line1","metric":512,"flags":[],"pref":"medium"},` + nowhere, "line1"},
		{"in another table", `{"dst":"default","gateway":"192.0.1.1","dev":"line1","table":"100","flags":[]}`, "", "line1"},
		{"in another table too", `{"dst":"default","dev":"wg0","table":"51820","scope":"link","flags":[]},` + byLine2, "", "line2"},
		{"DS-Lite", `{"dst":"default","dev":"ds0","scope":"link","flags":[]}`, six1, "line1"},
		{"DS-Lite by no interface", `{"dst":"default","dev":"ds1","scope":"link","flags":[]}`, six2, "line2"},
		{"DS-Lite alone", `{"dst":"default","dev":"ds0","scope":"link","flags":[]}`, "", "line1"},
		{"6in4", byLine2, `{"dst":"default","dev":"six0","metric":1024,"flags":[],"pref":"medium"}`, "line2"},
		{"6in4 beside another line", byLine1, `{"dst":"default","dev":"six0","metric":1024,"flags":[],"pref":"medium"}`, "--wan line1 --wan line2"},
		{"a VPN before the line", `{"dst":"default","gateway":"10.8.0.1","dev":"tun0","metric":50,"flags":[]},` + byLine2, "", "line2"},
		{"a VPN alone", `{"dst":"default","dev":"wg0","scope":"link","flags":[]}`, "", "wg0 line1 line2"},
		{"PPPoE", `{"dst":"default","dev":"ppp0","scope":"link","flags":[]}`, "", "ppp0"},
		{"PPPoE, and IPv6 beside it", `{"dst":"default","dev":"ppp0","scope":"link","flags":[]}`, six1, "line1"},
		{"none", "", nowhere, "there is no default route"},
		{"cut off", `{"dst":"default","gateway":"192.0.1.1"`, "", "read the default routes"},
	} {
		f, err := linux.Detect(t.Context(), twoLines(c.four, c.six), "", "")
		if err == nil && f.WAN == c.want {
			continue
		}
		said := ""
		if err != nil {
			said = err.Error()
		}
		named := said != "" && strings.Contains(said, "no default route") == (c.name == "none")
		for _, word := range strings.Fields(c.want) {
			named = named && strings.Contains(said, word)
		}
		if !named {
			t.Errorf("%s: %q, %v; want %s", c.name, f.WAN, err, c.want)
		}
	}
}

// TestPastTheLine: the doctor says what goes past the WAN that was named, and where it
// finds none, between which to choose.
func TestPastTheLine(t *testing.T) {
	dsLite := `{"dst":"default","dev":"ds0","scope":"link","flags":[]}`
	for _, c := range []struct{ name, four, six, wan, want string }{
		{"the line", byLine1, six1, "line1", ""},
		{"a tunnel", dsLite, six1, "ds0", "past-wan! tunnel IPv6 line1"},
		{"a tunnel alone", dsLite, "", "ds0", "past-wan! tunnel line1"},
		{"below a tunnel", dsLite, six1, "line1", ""},
		{"one of two", byBoth, "", "line1", "past-wan line2"},
		{"two", byBoth, "", "", "wan! line1 line2"},
		{"below PPPoE", `{"dst":"default","dev":"ppp0","scope":"link","flags":[]}`, six1, "line1", ""},
		{"PPPoE", `{"dst":"default","dev":"ppp0","scope":"link","flags":[]}`, six1, "ppp0", "past-wan IPv6 line1"},
		{"none", "", "", "", "wan! no default route"},
	} {
		e := &platform.Examination{Ctx: t.Context(), Runner: twoLines(c.four, c.six), WAN: c.wan}
		e.Each(linux.Checks(linux.Examined{})(e))
		var said string
		for _, f := range e.Findings {
			if f.ID == "wan" || f.ID == "past-wan" {
				blocking := map[bool]string{true: "!"}
				said += f.ID + blocking[f.Blocking] + " " + f.What + " " + f.Why + " " + f.Remedy
			}
		}
		if (said == "") != (c.want == "") {
			t.Errorf("%s: %q", c.name, said)
		}
		for _, word := range strings.Fields(c.want) {
			if !strings.Contains(said, word) {
				t.Errorf("%s: %q does not name %s", c.name, said, word)
			}
		}
	}
}
