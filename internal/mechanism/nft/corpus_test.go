package nft_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"testing"

	"unbloat/internal/mechanism/nft"
	"unbloat/internal/plan"
	"unbloat/unit"
)

func TestCorpus(t *testing.T) {
	dir := os.Getenv("CORPUS")
	if dir == "" {
		t.Skip()
	}
	os.MkdirAll(dir, 0o755)
	for name, tab := range tables(t) {
		os.WriteFile(dir+"/"+name+".nft", []byte(tab.Text), 0o644)
	}
	os.WriteFile(dir+"/sample.nft", []byte(nft.Sample()), 0o644)
	rng := rand.New(rand.NewPCG(1, 2))
	out := ""
	for i := range 3000 {
		w, err := plan.ParseClasses("rules", []byte(rules))
		if err != nil {
			t.Fatal(err)
		}
		var keep []plan.Rule
		for _, r := range w.Rules {
			if rng.IntN(2) == 0 {
				keep = append(keep, r)
			}
		}
		w.Rules = keep
		w.DSCP = plan.DSCPWish{TrustHome: rng.IntN(2) == 0, TrustFar: rng.IntN(2) == 0, WashUp: rng.IntN(2) == 0, WashDown: rng.IntN(2) == 0}
		line := plan.Line{Down: unit.Rate(rng.IntN(100)+1) * unit.MbitPerSecond, Up: unit.Rate(rng.IntN(30000)+500) * unit.KbitPerSecond}
		if rng.IntN(8) == 0 {
			line.Down = 0
		} else if rng.IntN(8) == 0 {
			line.Up = 0
		}
		p, err := plan.Make(line,
			plan.Facts{Platform: plan.Linux, WAN: "wan", LAN: "lan", IFB: true, Hosts: map[string][]string{"nas": {"192.168.1.9", "fd00::9"}}},
			plan.Wishes{AQM: []plan.AQM{plan.CAKE, plan.FQCoDel}[rng.IntN(2)], Side: []plan.Side{plan.SideIFB, plan.SideLAN}[rng.IntN(2)], Classes: w})
		if err != nil {
			continue
		}
		if p.Classes != nil {
			b := &p.Classes.Behaviour
			b.SmallPacket = []unit.Size{64, 100, 127, 128, 200, 255, 511, 512, 1000, 1500}[rng.IntN(10)]
			if rng.IntN(3) == 0 {
				b.FirstBytes, b.FirstUp = unit.Size(rng.IntN(3)), unit.Size(rng.IntN(3))
			}
			if rng.IntN(3) == 0 {
				b.Acks = 0
			}
			b.Flows = 16 << rng.IntN(10)
			b.CalmPackets = 1 + rng.IntN(300)
			b.CalmRate = unit.Rate(8000 + rng.IntN(1000000))
		}
		h := fnv.New64a()
		h.Write([]byte(nft.Render(p, "b10a:").Text))
		out += fmt.Sprintf("%d %x\n", i, h.Sum64())
	}
	os.WriteFile(dir+"/hashes", []byte(out), 0o644)
}
