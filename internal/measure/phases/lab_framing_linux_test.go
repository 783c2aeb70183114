package phases_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/framing"
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

// change gives the modem's queue of a direction a framing and a rate.
func (f modemFraming) change(t *testing.T, dev string, rate unit.Rate) {
	t.Helper()
	layer := "ethernet"
	if f.atm {
		layer = "atm"
	}
	buffer := rate.Bytes(300 * time.Millisecond)
	if f.ptm {
		rate = rate * 64 / 65
	}
	for _, line := range []string{
		fmt.Sprintf("dev %s root handle 2: stab mtu 2047 tsize 2048 mpu %d overhead %d linklayer %s netem delay 1us limit 1000000", dev, f.mpu, f.overhead-14, layer),
		fmt.Sprintf("dev %s parent 2:1 handle 1: tbf rate %dbit burst 2048b limit %db", dev, rate, buffer),
	} {
		command(t, append([]string{"tc", "-n", lab.NodeModem, "qdisc", "change"}, strings.Fields(line)...)...)
	}
}

// command runs a program of the router.
func command(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", argv, err, out)
	}
	return string(out)
}

// Framings of a real kernel's modem are found to the byte, in both directions: nine of ten are
// sure, none is sure and wrong. By day two of twelve. Where this machine shapes the line its shapers are open meanwhile.
func TestLabFraming(t *testing.T) {
	down, up := 1500*unit.KbitPerSecond, 700*unit.KbitPerSecond
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter, Server: true, Scenario: labtest.HomeAt(down, up)}) {
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
	// `make compare` takes what begins with ## or | into docs/evidence/framing.md.
	t.Log("## On a real kernel: `UNBLOAT_LONG=1 go test -v -run TestLabFraming ./internal/measure/phases`")
	t.Log("| the modem | direction | overhead, bytes | 99 % interval | least size | cells | rate | seconds | sure |")
	t.Log("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	tried, sure := 0, 0
	for _, f := range framings(labtest.Long()) {
		for _, way := range []struct {
			dir  phases.Direction
			dev  string
			rate unit.Rate
		}{{phases.Down, "m0", down}, {phases.Up, "m1", up}} {
			rate := way.rate
			f.change(t, way.dev, rate)
			if f.ptm {
				rate = rate * 64 / 65
			}
			began := time.Now()
			e, err := c.Framing(t.Context(), way.dir, way.rate)
			if err != nil {
				t.Fatal(err)
			}
			mpu, cells, certain := "not seen", "no", "no"
			if e.MPU > 0 {
				mpu = fmt.Sprint(e.MPU)
			}
			if e.ATM {
				cells = "yes"
			}
			if e.Sure {
				certain = "yes"
			}
			t.Logf("| %s | %s | %d | %.2f to %.2f | %s | %s | %s | %.1f | %s |", f.name, way.dir, e.Overhead, e.Low, e.High, mpu, cells, e.Rate.Short(), time.Since(began).Seconds(), certain)
			tried++
			switch {
			case !e.Sure:
				t.Logf("%s, %s: not sure: %s", f.name, way.dir, e.Why)
			case e.Overhead != f.overhead || e.MPU != f.mpu || e.ATM != f.atm:
				t.Errorf("%s, %s: sure and wrong: %+v", f.name, way.dir, e)
			default:
				sure++
			}
			if r := float64(e.Rate) / float64(rate); r < 0.99 || r > 1.01 {
				t.Errorf("%s, %s: %v of the line's own bytes, it has %v", f.name, way.dir, e.Rate, rate)
			}
		}
	}
	atm := framings(false)[0]
	atm.change(t, "m0", down)
	atm.change(t, "m1", up)
	command(t, labtest.Unbloat(), "apply", "--shape-down", "1200kbit", "--shape-up", "560kbit", "--wan", "wan", "--lan", "lan", "--yes")
	shapers := func() string {
		return command(t, "sh", "-c", "tc qdisc show dev wan; tc qdisc show dev ifb4wan")
	}
	before := shapers()
	var test verdict.Test
	if err := json.Unmarshal([]byte(command(t, labtest.Unbloat(), "test", "--server", lab.Server(), "--framing", "--json", "--quiet", "--idle", "2", "--seconds", "4")), &test); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*framing.Estimate{test.Framing.Down, test.Framing.Up} {
		switch tried++; {
		case !e.Sure:
			t.Logf("behind our shapers: not sure: %s", e.Why)
		case e.Overhead != atm.overhead || !e.ATM:
			t.Errorf("behind our shapers: sure and wrong: %+v", e)
		default:
			sure++
		}
	}
	if sure < 9*tried/10 { // of the six by day five: which one is not goes by the draw
		t.Errorf("sure of %d of %d, fewer than 90 %%", sure, tried)
	}
	if after := shapers(); after != before {
		t.Errorf("the shapers were\n%s\nand are\n%s", before, after)
	}
}
