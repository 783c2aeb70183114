package config_test

import (
	"errors"
	"strings"
	"testing"

	"unbloat/internal/keep/config"
	"unbloat/unit"
)

const sqmSettings = `
config queue 'eth1'
	option enabled '1'
	option interface 'pppoe-wan'
	option download '45000'
	option upload '9000'
	option qdisc 'fq_codel'
	option script 'simplest.qos'
	option linklayer 'atm'
	option overhead '44'
	option squash_dscp '1'
	option verbosity '5'

config queue 'old'
	option enabled '0'
	option interface 'eth2'
	option download '1000'
`

const autorateSettings = `#!/usr/bin/env bash
# *** INSTANCE-SPECIFIC ***
dl_if=ifb-wan # download interface
ul_if="wan"
adjust_dl_shaper_rate=1
min_dl_shaper_rate_kbps=5000  # minimum
base_dl_shaper_rate_kbps=20000
max_dl_shaper_rate_kbps=80000
min_ul_shaper_rate_kbps=1000
base_ul_shaper_rate_kbps='5000'
max_ul_shaper_rate_kbps=35000
pinger_method=fping
reflectors=(
"1.1.1.1" "1.0.0.1"  # one operator
"8.8.8.8" example.org
)
ping_extra_args="-I $ul_if"
dl_owd_delta_delay_thr_ms=30.0
`

const qosmateSettings = `
config global 'global'
	option enabled '1'

config settings 'settings'
	option WAN 'eth1'
	option DOWNRATE '90000'
	option UPRATE '45000'
	option ROOT_QDISC 'hfsc'

config advanced 'advanced'
	option COMMON_LINK_PRESETS 'docsis'
	option OVERHEAD '18'
	option LOWPRIOLAN4 '192.168.1.9 192.168.1.0/28'
	option MSS '1400'
	option ACKRATE '0'

config rule 'game'
	option name 'console'
	option class 'cs5'
`

// What others' settings say becomes a configuration of ours that is valid and means the
// same; what has no counterpart is said, and nothing else.
func TestTakeOver(t *testing.T) {
	for _, c := range []struct {
		rival config.Rival
		text  string
		check func(config.WAN) bool
		left  []string
	}{
		{config.RivalSQM, sqmSettings, func(w config.WAN) bool {
			return w.Interface == "pppoe-wan" && w.ShapeDown.Rate == 45*unit.MbitPerSecond && w.ShapeUp.Rate == 9*unit.MbitPerSecond && w.AQM == "fq_codel" &&
				w.Classes == "off" && w.LinkLayer == "atm" && w.Overhead == 44 && !w.Follow
		}, []string{"squash_dscp", "section old is off"}},
		{config.RivalAutorate, autorateSettings, func(w config.WAN) bool {
			return w.Interface == "wan" && w.Follow && w.LeastDown == 5*unit.MbitPerSecond && w.Down == 20*unit.MbitPerSecond && w.MostDown == 80*unit.MbitPerSecond &&
				w.LeastUp == unit.MbitPerSecond && w.Up == 5*unit.MbitPerSecond && w.MostUp == 35*unit.MbitPerSecond && len(w.Reflectors) == 3
		}, []string{"example.org", "ping_extra_args", "pinger_method", "dl_owd_delta_delay_thr_ms"}},
		{config.RivalQoSmate, qosmateSettings, func(w config.WAN) bool {
			return w.Interface == "eth1" && w.ShapeDown.Rate == 90*unit.MbitPerSecond && w.ShapeUp.Rate == 45*unit.MbitPerSecond && w.LinkLayer == "docsis" && w.Overhead == 18 &&
				len(w.Last) == 1
		}, []string{"192.168.1.0/28", "MSS", "rule console", "ROOT_QDISC hfsc"}},
	} {
		got, err := config.TakeOver(c.rival, "file", []byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.rival, err)
			continue
		}
		conf, err := config.Parse("ours", []byte(got.Text))
		if err != nil || len(conf.WANs) != 1 || !c.check(conf.WANs[0]) {
			t.Errorf("%s: %v\n%s", c.rival, err, got.Text)
		}
		all := strings.Join(got.Left, "\n")
		for _, want := range c.left {
			if !strings.Contains(all, want) {
				t.Errorf("%s: %q is not said:\n%s", c.rival, want, all)
			}
		}
		if len(got.Left) != len(c.left) {
			t.Errorf("%s: %d things are said, want %d:\n%s", c.rival, len(got.Left), len(c.left), all)
		}
		if !strings.Contains(got.Text, c.rival.Stop()) || c.rival.Stop() == "" {
			t.Errorf("%s: what stops it is not said:\n%s", c.rival, got.Text)
		}
	}
}

// What can't be taken over is refused with the key that is to blame.
func TestTakeOverRefuses(t *testing.T) {
	for _, c := range []struct {
		rival      config.Rival
		text, want string
	}{
		{config.RivalSQM, "config queue 'a'\n\toption enabled '0'\n", "no section of it is on"},
		{config.RivalSQM, "config queue 'a'\n\toption enabled '1'\n\toption interface 'eth0'\n\toption download 'fast'\n", "download"},
		{config.RivalSQM, "config queue 'a'\n\toption enabled '1'\n\toption interface 'eth0'\n\toption download '1000'\n\toption overhead 'x'\n", "number of bytes"},
		{config.RivalSQM, "config queue 'a'\n\toption enabled '1'\n\toption interface 'a b'\n\toption download '1000'\n", "no counterpart that unbloat accepts"},
		{config.RivalSQM, "config queue 'a\n", "line"},
		{config.RivalAutorate, "echo hello\n", "ul_if"},
		{config.RivalAutorate, "ul_if=wan\nbase_dl_shaper_rate_kbps=$(rate)\n", "base_dl_shaper_rate_kbps"},
		{config.RivalQoSmate, "config global 'global'\n", "WAN"},
		{"wondershaper", "", "none of"},
	} {
		_, err := config.TakeOver(c.rival, "file", []byte(c.text))
		var bad *config.Error
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) && !(c.want == "line" && bad.Line > 0) {
			t.Errorf("%s %q: %v, want %q", c.rival, c.text, err, c.want)
		}
	}
}

// Whatever a file has, it is taken over as a valid configuration, or refused.
func FuzzTakeOver(f *testing.F) {
	for _, text := range []string{sqmSettings, autorateSettings, qosmateSettings} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range config.Rivals() {
			got, err := config.TakeOver(r, "file", []byte(text))
			if err != nil {
				continue
			}
			if _, err := config.Parse("ours", []byte(got.Text)); err != nil {
				t.Errorf("%s of %q: %v\n%s", r, text, err, got.Text)
			}
		}
	})
}
