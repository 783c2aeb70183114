package simlab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"unbloat/internal/lab"
	"unbloat/internal/scenario"
	"unbloat/internal/verdict"
)

func persec(p *verdict.Phase) string {
	out := ""
	for i := 0; i+10 <= max(len(p.Series.UpMbps), len(p.Series.DownMbps)); i += 10 {
		var u, d, m float64
		for k := i; k < i+10; k++ {
			if k < len(p.Series.UpMbps) {
				u += p.Series.UpMbps[k] / 10
			}
			if k < len(p.Series.DownMbps) {
				d += p.Series.DownMbps[k] / 10
			}
		}
		for k, t := range p.Series.TS {
			if t-p.Series.StartS >= float64(i)/10 && t-p.Series.StartS < float64(i+10)/10 && p.Series.RTTMs[k] != nil {
				m = max(m, *p.Series.RTTMs[k])
			}
		}
		out += fmt.Sprintf("[%d] %.2f/%.2f:%.0f ", i/10, u, d, m)
	}
	return out
}

func TestDebug(t *testing.T) {
	name, cs, ph := os.Getenv("S"), os.Getenv("C"), os.Getenv("P")
	if name == "" {
		t.Skip()
	}
	text, _ := os.ReadFile("/tmp/simcmp/" + name + ".json")
	var r lab.Result
	json.Unmarshal(text, &r)
	f, err := os.ReadFile("../../scenarios/" + name + ".toml")
	if err != nil {
		f, _ = os.ReadFile("testdata/" + name + ".toml")
	}
	s, err := scenario.Parse(name, f)
	if err != nil {
		t.Fatal(err)
	}
	q, err := Run(context.Background(), s, Options{Cases: []string{cs}, Seed: 3, Series: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []*lab.Result{&r, q} {
		for _, c := range x.Cases {
			if c.Name != cs {
				continue
			}
			for _, p := range c.Test.Phases() {
				if p.Name == ph {
					fmt.Println(x.Engine, p.Retransmits, persec(p.Phase))
				}
			}
		}
	}
}
