package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"unbloat/internal/doctor"
	"unbloat/internal/host"
	"unbloat/internal/host/fake"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// router is a Linux router of fakes, on which everything is in order.
func router() *fake.OpenWrt {
	o := fake.NewOpenWrt()
	o.Files["/etc/os-release"] = "ID=debian\n"
	o.Files["/proc/self/status"] = "CapEff:\t000001ffffffffff\n"
	o.Files["/proc/cpuinfo"] = "processor\t: 0\ncpu MHz\t\t: 2400.000\n"
	say := func(text string) fake.Tool {
		return fake.Tool{Run: func([]string, []byte) (string, error) { return text, nil }}
	}
	o.Tools["date"], o.Tools["uname"] = say("1795000000\n"), say("x86_64\n")
	o.Tools["nft"] = say("")
	return o
}

func examine(t *testing.T, o *fake.OpenWrt, change func(c *doctor.Config)) *doctor.Report {
	t.Helper()
	c := doctor.Config{Runner: o, Platform: plan.Linux, WAN: "wan", LAN: "lan", Down: 100 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond, Now: time.Unix(1795000010, 0)}
	if change != nil {
		change(&c)
	}
	r, err := doctor.Examine(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFindings: each thing in the way is found on its own, with its remedy.
func TestFindings(t *testing.T) {
	if r := examine(t, router(), nil); !r.OK || len(r.Findings) > 0 {
		t.Errorf("in order: %+v", r.Findings)
	}
	for _, c := range []struct {
		id     string
		inWay  bool
		remedy string
		spoil  func(o *fake.OpenWrt, c *doctor.Config)
	}{
		{"no-aqm", true, "linux-image", func(o *fake.OpenWrt, _ *doctor.Config) { o.Kernel.Missing = []string{"cake", "fq_codel"} }},
		{"no-cake", false, "modprobe", func(o *fake.OpenWrt, _ *doctor.Config) { o.Kernel.Missing = []string{"cake"} }},
		{"no-cake", false, "linux-modules-extra", func(o *fake.OpenWrt, _ *doctor.Config) {
			o.Kernel.Missing = []string{"cake"}
			o.Files["/etc/os-release"] = "ID=ubuntu\nID_LIKE=debian\n"
		}},
		{"no-ifb", false, "ifb", func(o *fake.OpenWrt, _ *doctor.Config) { o.Kernel.Missing = []string{"ifb"} }},
		{"tool-ethtool", false, "apt-get install ethtool", func(o *fake.OpenWrt, _ *doctor.Config) { delete(o.Tools, "ethtool") }},
		{"privilege", true, "sudo", func(o *fake.OpenWrt, _ *doctor.Config) { o.Files["/proc/self/status"] = "CapEff:\t0000000000000000\n" }},
		{"flow-offload", true, "handles", func(o *fake.OpenWrt, _ *doctor.Config) {
			o.Tools["nft"] = fake.Tool{Run: func([]string, []byte) (string, error) {
				return "table inet fw {\n\tflowtable ft {\n\t\thook ingress priority filter\n\t\tdevices = { lan, wan }\n\t\tflags offload\n\t}\n\tchain forward {\n\t\tflow add @ft\n\t}\n}\n", nil
			}}
		}},
		{"clearos-bandwidth", true, "BANDWIDTH_QOS", func(o *fake.OpenWrt, _ *doctor.Config) {
			o.Files["/etc/clearos/bandwidth.conf"] = "BANDWIDTH_QOS=\"on\"\n"
		}},
		{"sqm", true, "enabled=0", func(o *fake.OpenWrt, _ *doctor.Config) {
			o.Files[fake.SQMConfig] = "config queue 'w'\n\toption enabled '1'\n\toption interface 'wan'\n"
		}},
		{"wondershaper", true, "disable", func(o *fake.OpenWrt, _ *doctor.Config) {
			o.Tools["systemctl"] = fake.Tool{Run: func([]string, []byte) (string, error) { return "enabled\n", nil }}
		}},
		{"cpu", false, "tune", func(o *fake.OpenWrt, c *doctor.Config) {
			c.Down = 900 * unit.MbitPerSecond
			o.Files["/proc/cpuinfo"] = "system type\t: Atheros AR9344\nBogoMIPS\t\t: 278.93\n"
		}},
		{"clock", true, "ntpd", func(o *fake.OpenWrt, _ *doctor.Config) {
			o.Tools["date"] = fake.Tool{Run: func([]string, []byte) (string, error) { return "86400\n", nil }}
		}},
		{"clock", true, "ntpd", func(_ *fake.OpenWrt, c *doctor.Config) { c.Far, c.Now = true, c.Now.Add(time.Hour) }},
		{"clocksource", false, "tsc", func(o *fake.OpenWrt, _ *doctor.Config) {
			o.Files["/sys/devices/system/clocksource/clocksource0/current_clocksource"] = "hpet\n"
		}},
		{"rehearsal", true, "do this", func(_ *fake.OpenWrt, c *doctor.Config) {
			c.Rehearse = func(context.Context) error {
				return &host.PreconditionError{Doing: "shape wan", What: "something", Remedy: "do this", Err: errors.New("x")}
			}
		}},
	} {
		o := router()
		r := examine(t, o, func(cfg *doctor.Config) { c.spoil(o, cfg) })
		if len(r.Findings) != 1 || r.Findings[0].ID != c.id || r.Findings[0].InWay != c.inWay || r.OK == c.inWay || !strings.Contains(r.Findings[0].Remedy, c.remedy) {
			t.Errorf("%s: %+v", c.id, r.Findings)
		}
		if len(o.Ran) > 0 {
			t.Errorf("%s: it ran %q", c.id, o.Ran)
		}
	}
}

// TestHalfShaped: merged packets behind HTB, and a shaper that doesn't know of PPPoE.
func TestHalfShaped(t *testing.T) {
	o := router()
	for _, line := range []string{
		"tc qdisc add dev wan root handle 1: htb default 10",
		"tc class add dev wan parent 1: classid 1:10 htb rate 5000kbit ceil 5000kbit burst 1749 cburst 1749",
		"tc qdisc add dev wan parent 1:10 handle 110: fq_codel limit 1001",
	} {
		if _, errOut, err := o.Run(t.Context(), strings.Fields(line), nil); err != nil {
			t.Fatalf("%s: %s", line, errOut)
		}
	}
	r := examine(t, o, func(c *doctor.Config) { c.LinkLayer = plan.DOCSIS })
	ids := ""
	for _, f := range r.Findings {
		ids += f.ID + " "
	}
	if ids != "other-shaper offloads overhead " {
		t.Errorf("found %s: %+v", ids, r.Findings)
	}
}
