package sqm_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/unit"
)

func TestRender(t *testing.T) {
	line := plan.Line{Down: 100 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond, Overhead: 44, MPU: 84}
	facts := plan.Capabilities{Language: openwrt.Language(), WAN: "pppoe-wan", IFB: true, PointToPoint: true}
	for _, c := range []struct {
		aqm  plan.AQM
		want string
	}{{plan.CAKE, `config queue 'unbloat'
	option enabled '1'
	option interface 'pppoe-wan'
	option download '90000'
	option upload '9500'
	option qdisc 'cake'
	option script 'piece_of_cake.qos'
	option linklayer 'ethernet'
	option overhead '44'
	option tcMPU '84'
	option qdisc_advanced '1'
	option squash_dscp '0'
	option squash_ingress '0'
	option qdisc_really_really_advanced '1'
	option iqdisc_opts 'nat dual-dsthost ingress'
	option eqdisc_opts 'nat dual-srchost ack-filter'
`}, {plan.FQCoDel, `config queue 'unbloat'
	option enabled '1'
	option interface 'pppoe-wan'
	option download '90000'
	option upload '9500'
	option qdisc 'fq_codel'
	option script 'simplest.qos'
	option linklayer 'ethernet'
	option overhead '44'
	option tcMPU '84'
	option qdisc_advanced '1'
	option qdisc_really_really_advanced '1'
	option itarget '5ms'
	option ilimit '7431'
	option ingress_ecn 'ECN'
	option iqdisc_opts 'quantum 1514 flows 1024 interval 100ms'
	option etarget '5ms'
	option elimit '1001'
	option egress_ecn 'ECN'
	option eqdisc_opts 'quantum 300 flows 1024 interval 100ms'
`}} {
		p, err := plan.Make(line, facts, plan.Preferences{AQM: c.aqm, Classes: plan.ClassPreferences{Use: plan.ClassesOff}})
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := Render(p)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, s.String()); d != "" {
			t.Error(d)
		}
	}
}

// TestParseIsInverse: Parse reads back exactly what was rendered.
func TestParseIsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(label string) unit.Rate { return unit.Rate(rapid.Int64Range(64e3, 10e9).Draw(t, label)) }
		p, err := plan.Make(plan.Line{Down: rate("down"), Up: rate("up"), LinkLayer: rapid.SampledFrom([]plan.LinkLayer{"", plan.DOCSIS, plan.ATM, plan.PTM}).Draw(t, "layer")},
			plan.Capabilities{Language: openwrt.Language(), WAN: "eth0.2", IFB: true},
			plan.Preferences{
				AQM:  rapid.SampledFrom([]plan.AQM{plan.CAKE, plan.FQCoDel}).Draw(t, "aqm"),
				Only: rapid.SampledFrom([]plan.Direction{"", plan.DirectionUp, plan.DirectionDown}).Draw(t, "only"),
			})
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := Render(p)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(s.String())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]Section{s}, back); d != "" {
			t.Fatal(d)
		}
		down, up, err := s.Rates()
		if err != nil || down != p.DownBps || up != p.UpBps {
			t.Fatalf("%s/%s, want %s/%s: %v", down, up, p.DownBps, p.UpBps, err)
		}
		if target, _ := unit.ParseDuration(s.Get("itarget")); p.Down != nil && target != p.Down.Target {
			t.Fatalf("target %v, want %v", target, p.Down.Target)
		}
	})
}

func TestParseByHand(t *testing.T) {
	got, err := Parse("# LuCI wrote this\nconfig queue\n\toption interface \"eth1\"\n  option upload 9000\n\toption upload '9500'\n\toption etarget '15ms'\n")
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if _, up, _ := got[0].Rates(); up != 9500*unit.KbitPerSecond || got[0].Get("interface") != "eth1" {
		t.Errorf("%+v", got[0])
	}
	if up, err := unit.ParseDuration(got[0].Get("etarget")); err != nil || up != 15*time.Millisecond {
		t.Errorf("target %v", up)
	}
	got, err = Parse("config global 'all'\n\toption enabled '1'\nconfig queue\n\toption enabled '0'  # not yet\n\toption interface \"the kids' line\"; option upload '5'\n")
	if err != nil || len(got) != 1 || got[0].Name != "@queue[0]" || got[0].Get("enabled") != "0" || got[0].Get("interface") != "the kids' line" || got[0].Get("upload") != "5" {
		t.Errorf("%v %+v", err, got)
	}
	for _, bad := range []string{"option upload '1'", "config queue 'a'\noption x 'y", "sqm.a.b='c'"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("config queue 'a'\n\toption upload '9000'\n")
	f.Fuzz(func(t *testing.T, text string) {
		sections, err := Parse(text)
		if err != nil {
			return
		}
		for _, s := range sections {
			_, _, _ = s.Rates()
		}
	})
}
