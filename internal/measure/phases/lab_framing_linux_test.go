package phases_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// A modem's framing, as tc-stab(8) says it, and what is to be found.
type modemFraming struct {
	name          string
	overhead, mpu int
	atm           bool
	ptm           bool // 64 of 65 bytes carry data
}

func framings(long bool) []modemFraming {
	all := []modemFraming{
		{name: "ATM LLC PPPoE", overhead: 40, atm: true},
		{name: "DOCSIS", overhead: 18, mpu: 64},
		{name: "PPPoE 34", overhead: 34},
		{name: "ATM LLC bridged", overhead: 32, atm: true},
		{name: "ATM VC bridged", overhead: 24, atm: true},
		{name: "ATM VC PPPoA", overhead: 10, atm: true},
		{name: "PTM with VLAN", overhead: 26, ptm: true},
		{name: "Ethernet 14", overhead: 14},
		{name: "Ethernet 18", overhead: 18},
		{name: "Ethernet 38", overhead: 38, mpu: 84},
		{name: "Ethernet 42", overhead: 42},
		{name: "PPPoE 30", overhead: 30},
	}
	if long {
		return all
	}
	return all[:2]
}

// Framings of a real kernel's modem are found to the byte, in both directions. By day
// two of twelve.
func TestLabFraming(t *testing.T) {
	down, up := 1500*unit.KbitPerSecond, 700*unit.KbitPerSecond
	if !labtest.Inside(t, labtest.Options{Node: lab.Host(1), Server: true, Scenario: labtest.HomeAt(down, up)}) {
		return
	}
	c, err := phases.Dial(t.Context(), lab.Server(), phases.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The probes of a phase must not go on beside the trains: they would be others' traffic.
	if _, err := c.Phase(t.Context(), phases.PhaseSpec{Name: verdict.PhaseIdle, Duration: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	for _, f := range framings(labtest.Long()) {
		for _, way := range []struct {
			dir  phases.Direction
			dev  string
			rate unit.Rate
		}{{phases.Down, "m0", down}, {phases.Up, "m1", up}} {
			layer, rate := "ethernet", way.rate
			if f.atm {
				layer = "atm"
			}
			if f.ptm {
				rate = rate * 64 / 65
			}
			for _, line := range []string{
				fmt.Sprintf("dev %s root handle 2: stab mtu 2047 tsize 2048 mpu %d overhead %d linklayer %s netem delay 1us limit 1000000", way.dev, f.mpu, f.overhead-14, layer),
				fmt.Sprintf("dev %s parent 2:1 handle 1: tbf rate %dbit burst 2048b limit %db", way.dev, rate, way.rate.Bytes(300*time.Millisecond)),
			} {
				args := append([]string{"-n", lab.NodeModem, "qdisc", "change"}, strings.Fields(line)...)
				if out, err := exec.CommandContext(t.Context(), "tc", args...).CombinedOutput(); err != nil {
					t.Fatalf("tc %v: %v: %s", args, err, out)
				}
			}
			began := time.Now()
			e, err := c.Framing(t.Context(), way.dir, way.rate)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %s: overhead %d, mpu %d, atm %v, %v (%.2f to %.2f) in %.1f s: %v", f.name, way.dir, e.Overhead, e.MPU, e.ATM, e.Rate, e.Low, e.High, time.Since(began).Seconds(), e.Why)
			if !e.Sure || e.Overhead != f.overhead || e.MPU != f.mpu || e.ATM != f.atm {
				t.Errorf("%s, %s: found %+v", f.name, way.dir, e)
			}
			if r := float64(e.Rate) / float64(rate); r < 0.99 || r > 1.01 {
				t.Errorf("%s, %s: %v of the line's own bytes, it has %v", f.name, way.dir, e.Rate, rate)
			}
		}
	}
}
