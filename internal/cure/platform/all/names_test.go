package all_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/unit"
)

// TestRatesAndNames: for every platform, rates from 64 kbit/s to 10 Gbit/s in
// all units, and names of VLANs, PPPoE and with 15, 16 and 63 characters, are
// either written so that the platform's own grammar reads them back, or refused
// with the reason. The test lists all that are refused.
func TestRatesAndNames(t *testing.T) {
	const long15, long16 = "enp0s31f6np1.10", "enp0s31f6np1.100"
	names := map[string]string{ // with the error; "": accepted
		"em0": "", "eth0.100": "", "vlan4094": "", "pppoe-wan": "", "ppp0": "", "br-lan": "", long15: "",
		long16: "at most 15", strings.Repeat("x", 63): "at most 15", "": "", "eth0;reboot": "has the character", "-eth0": "not an interface's name",
	}
	ownNames := map[string]string{"wan": "", "opt12": "", "lan2": "give that name", "igb0": "give that name"}
	rates := []string{"64kbit", "64000bit", "0.064mbit", "950 kbit/s", "29.1 Mbit/s", "1gbit", "1000 Mbps", "4.29gbit", "4294967294bit", "4.294967295Gbit/s", "10gbit", "10000mbit", "0.01tbit"}
	most := map[string]unit.Rate{"opnsense": 4294967294, "freebsd": 4294967294, "pfsense": 4294967294, "openbsd-altq": 4294967295}
	for _, platform := range all.Names() {
		list := names
		if platform == "opnsense" {
			list = ownNames
		}
		for name, refused := range list {
			f, err := all.Assume(platform, name, "")
			if err != nil {
				t.Fatal(err)
			}
			if f.LAN == f.WAN {
				f.LAN = "lan0"
			}
			for _, text := range rates {
				r, err := unit.ParseRate(text)
				if err != nil {
					t.Fatal(err)
				}
				want := refused
				if limit := most[platform]; want == "" && limit != 0 && r > limit {
					want = "is above 4.29"
				}
				written(t, f, r, want)
			}
		}
	}
}

// written plans a rate in both directions. The plan must be written, or refused
// with the error.
func written(t *testing.T, f plan.Capabilities, r unit.Rate, refused string) {
	t.Helper()
	p, err := plan.Make(plan.Line{}, f, plan.Preferences{Down: plan.RatePreference{Rate: r}, Up: plan.RatePreference{Rate: r}})
	if refused != "" {
		var field *plan.FieldError
		if !errors.As(err, &field) || !strings.Contains(err.Error(), refused) {
			t.Errorf("%s, %q, %s: %v, want %q", f.Platform, f.WAN, r, err, refused)
		}
		return
	}
	if err != nil {
		t.Errorf("%s, %q, %s: %v", f.Platform, f.WAN, r, err)
		return
	}
	text, err := all.Text(p)
	if err != nil {
		t.Errorf("%s, %q, %s: %v", f.Platform, f.WAN, r, err)
		return
	}
	step := unit.BitPerSecond
	if f.Platform == "openwrt" || f.Platform == "clearos" {
		step = unit.KbitPerSecond // and the plan says so
	}
	if p.UpBps != r/step*step {
		t.Errorf("%s: %s became %s", f.Platform, r, p.UpBps)
	}
	var code strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			code.WriteString(line)
		}
	}
	if err := readBack(f.Platform, code.String()); err != nil {
		t.Errorf("%s, %q, %s: %v\n%s", f.Platform, f.WAN, r, err, code.String())
	}
	if !slices.Contains([]string{"opnsense", "pfsense"}, f.Platform) && !strings.Contains(code.String(), f.WAN) {
		t.Errorf("%s: %q is not in what is to be pasted", f.Platform, f.WAN)
	}
}

// TestQueueNames: names of pf's queues may have 63 characters, in both
// grammars.
func TestQueueNames(t *testing.T) {
	for n, ok := range map[int]bool{15: true, 63: true, 64: false} {
		name := strings.Repeat("q", n)
		_, err := pf.Parse("queue " + name + " on em0 bandwidth 1M max 1M default\n")
		_, old := pf.ParseALTQ("altq on em0 bandwidth 1Mb hfsc queue { " + name + " }\nqueue " + name + " bandwidth 100% hfsc ( default )\n")
		for _, err := range []error{err, old} {
			if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "too long") {
				t.Errorf("%d characters: %v", n, err)
			}
		}
	}
}
