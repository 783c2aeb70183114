package platform_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/cure/platform"
	"unbloat/testkit/labtest"
)

// run runs `unbloat doctor --json` on the router and expects an exit code. It
// returns the blocking findings and the others.
func examined(t *testing.T, code int, args ...string) (inWay, notes []string, r platform.DoctorReport) {
	t.Helper()
	cmd := exec.Command(labtest.Unbloat(), append([]string{"doctor", "--json", "--wan", "wan", "--lan", "lan", "--state-dir", t.TempDir()}, args...)...)
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Errorf("%v: %v, want exit %d; it says %s", args, err, code, out)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	for _, f := range r.Findings {
		if f.Why == "" || f.Remedy == "" || f.What == "" {
			t.Errorf("%s says too little: %+v", f.ID, f)
		}
		if f.Blocking {
			inWay = append(inWay, f.ID)
		} else {
			notes = append(notes, f.ID)
		}
	}
	return inWay, notes, r
}

func sh(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// TestDoctor examines a real kernel: at first no finding is blocking. Each
// problem that the test creates is found, and is gone after its own remedy was
// run.
func TestDoctor(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{}) {
		return
	}
	if in, notes, r := examined(t, 0, "--down", "20mbit", "--up", "4mbit"); len(in) > 0 || !r.OK || r.Schema != platform.DoctorSchema {
		t.Errorf("a clean router: %v, %v, %+v", in, notes, r)
	} else {
		t.Logf("clean: checked %v, skipped %v, notes %v", r.Checked, r.Skipped, notes)
	}
	has := func(list []string, id string) bool {
		return strings.Contains(" "+strings.Join(list, " ")+" ", " "+id+" ")
	}

	sh(t, "tc qdisc add dev wan root handle 8001: tbf rate 4mbit burst 5000 latency 50ms")
	in, notes, _ := examined(t, 5)
	if !has(in, "other-shaper") || !has(notes, "no-isolation") {
		t.Errorf("a tbf: %v, %v", in, notes)
	}
	sh(t, "tc qdisc del dev wan root")

	if labtest.Long() { // by day TestFindings has them
		sh(t, "ip link set dev wan mtu 1200")
		if in, _, _ := examined(t, 5); !has(in, "mtu") {
			t.Errorf("an MTU of 1200: %v", in)
		}
		sh(t, "ip link set dev wan mtu 1500")

		sh(t, "tc qdisc add dev wan handle ffff: ingress")
		sh(t, "tc filter add dev wan parent ffff: protocol ip prio 10 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev lan")
		if in, _, _ := examined(t, 5); !has(in, "ipv6-bypass") || !has(in, "other-shaper") {
			t.Errorf("IPv4 alone redirected: %v", in)
		}
		sh(t, "tc filter add dev wan parent ffff: protocol ipv6 prio 11 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev lan")
		if in, _, _ := examined(t, 5); has(in, "ipv6-bypass") {
			t.Errorf("both redirected: %v", in)
		}
		sh(t, "tc qdisc del dev wan ingress")
	}

	if in, _, _ := examined(t, 5, "--wan", "nowhere"); !has(in, "wan") {
		t.Errorf("no such interface: %v", in)
	}

	sh(t, labtest.Unbloat()+" apply --wan wan --shape-up 4mbit --yes --aqm fq_codel --quiet --state-dir "+t.TempDir())
	if labtest.Long() {
		if in, _, _ := examined(t, 5, "--link-layer", "docsis"); !has(in, "overhead") || has(in, "other-shaper") {
			t.Errorf("a shaper that doesn't know of DOCSIS: %v", in)
		}
	}
	if in, _, _ := examined(t, 0); len(in) > 0 {
		t.Errorf("our own shaper: %v", in)
	}

	// Both directions are shaped with HTB. The ifb has TSO and GSO, which merge
	// nothing there.
	state := []string{"--state-dir", t.TempDir()}
	unbloat := func(args string) {
		t.Helper()
		sh(t, labtest.Unbloat()+" "+args+" --quiet "+strings.Join(state, " "))
	}
	unbloat("apply --wan wan --lan lan --shape-down 20mbit --shape-up 4mbit --yes --aqm fq_codel --replace")
	if out, err := exec.Command("ethtool", "-k", "ifb4wan").Output(); err != nil || !strings.Contains(string(out), "tcp-segmentation-offload: on") {
		t.Errorf("the ifb has no TSO, so nothing is proven of it: %v: %s", err, out)
	}
	if in, notes, _ := examined(t, 0, state...); has(in, "offloads") || has(notes, "offloads") {
		t.Errorf("our own ifb: %v, %v", in, notes)
	}
	sh(t, "tc qdisc del dev wan root")
	if in, _, _ := examined(t, 5, state...); !has(in, "drift") {
		t.Errorf("the upload's shaper is gone: %v", in)
	}
	if err := exec.Command(labtest.Unbloat(), append([]string{"status", "--quiet"}, state...)...).Run(); err == nil || err.(*exec.ExitError).ExitCode() != 1 {
		t.Errorf("status of a lost shaper: %v", err)
	}
	unbloat("apply --again --yes")
	unbloat("status")
	unbloat("revert")

	rules := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(rules, []byte("table inet fw {\n flowtable ft {\n  hook ingress priority 0\n  devices = { lan, wan }\n }\n chain forward {\n  type filter hook forward priority 0;\n  ip protocol tcp flow add @ft\n }\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("nft", "-f", rules).CombinedOutput(); err != nil {
		t.Logf("SKIPPED: flow offload: nft: %v: %s", err, out)
		return
	}
	if _, notes, _ := examined(t, 0); !has(notes, "flow-offload") {
		t.Errorf("a flow table in software: %v", notes)
	}
}
