package apply_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// The load of TestRetuneInPlace: bursts that are in CAKE's queue while it is
// retuned. The packets are ECN-capable (ECT), so that CAKE marks instead of
// dropping them.
const (
	loadEnv   = "UNBLOAT_TEST_LOAD" // "send" or "receive"
	loadAddr  = lab.ServerAddr + ":9999"
	loadBurst = 15
	loadBytes = 1000
	loadPause = 50 * time.Millisecond
)

// retunes is how many retunes there are, and loadRounds how many bursts meanwhile.
func retunes() int {
	if labtest.Long() {
		return 100
	}
	return 5
}

func loadRounds() int { return retunes() * 6 / 5 }

// TestLoadHelper sends or receives the load, as a child of TestRetuneInPlace.
func TestLoadHelper(t *testing.T) {
	switch os.Getenv(loadEnv) {
	case "send":
		c, err := net.Dial("udp", loadAddr)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_TOS, 2) })
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, loadBytes)
		for i := range loadRounds() {
			for k := range loadBurst {
				binary.BigEndian.PutUint32(b, uint32(i*loadBurst+k))
				if _, err := c.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(loadPause)
		}
	case "receive":
		c, err := net.ListenPacket("udp", loadAddr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("LISTENING")
		seen := map[uint32]bool{}
		b := make([]byte, 2000)
		for len(seen) < loadBurst*loadRounds() {
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, _, err := c.ReadFrom(b); err != nil {
				break
			}
			seen[binary.BigEndian.Uint32(b)] = true
		}
		fmt.Println("RECEIVED", len(seen))
	}
}

func startLoad(t *testing.T, ctx context.Context, node, role string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := labtest.In(ctx, node, os.Args[0], "-test.run", "^TestLoadHelper$", "-test.v")
	cmd.Env = append(os.Environ(), loadEnv+"="+role)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// cakeCounters reads the counters of the upload's CAKE.
func cakeCounters(t *testing.T) tc.Counters {
	t.Helper()
	out, err := exec.Command("tc", "-s", "-d", "-j", "qdisc", "show", "dev", "wan").Output()
	if err != nil {
		t.Fatal(err)
	}
	cs, err := tc.ParseCounters(out, "wan")
	if err != nil || cs[0].Kind != "cake" {
		t.Fatalf("read the counters of CAKE: %v: %s", err, out)
	}
	return cs[0]
}

func TestRetuneInPlace(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	r := &counter{}
	e := engineIn(t.TempDir(), r)
	const down = 20 * unit.MbitPerSecond
	p := labPlan(t, plan.CAKE, down, 4*unit.MbitPerSecond)
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute, Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	r.ran = nil
	rx, heard := startLoad(t, t.Context(), lab.NodeServer, "receive")
	time.Sleep(2 * time.Second) // the modem's bridge starts forwarding a second after boot
	tx, said := startLoad(t, t.Context(), "home1", "send")
	backlog := false
	for i := range retunes() {
		rate := 4*unit.MbitPerSecond + unit.Rate(i%7)*100*unit.KbitPerSecond
		if i%7 == 0 {
			rate += 50 * unit.KbitPerSecond // different from the previous rate
		}
		if err := tr.Retune(t.Context(), p.WithRates(down, rate)); err != nil {
			t.Fatal(err)
		}
		backlog = backlog || cakeCounters(t).BacklogPkts > 0
		time.Sleep(loadPause * 7 / 10) // out of step with the bursts
	}
	if err := tx.Wait(); err != nil {
		t.Fatalf("send: %v: %s", err, said)
	}
	if err := rx.Wait(); err != nil {
		t.Fatalf("receive: %v: %s", err, heard)
	}
	if want := fmt.Sprintf("RECEIVED %d\n", loadBurst*loadRounds()); !strings.Contains(heard.String(), want) {
		t.Errorf("under %d retunes the server heard %q, not %q", retunes(), heard, want)
	}
	if !backlog {
		t.Error("no backlog was ever seen: the load proves nothing")
	}
	if c := cakeCounters(t); c.Drops != 0 {
		t.Errorf("CAKE itself counts %d drops", c.Drops)
	}
	if len(r.ran) != retunes() {
		t.Errorf("%d retunes ran %d commands", retunes(), len(r.ran))
	}
	for _, c := range r.ran {
		if !strings.HasPrefix(c, "tc qdisc change dev wan root handle b10a: cake ") {
			t.Fatalf("a retune ran %q", c)
		}
	}
	if err := tr.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestKilledTuner: if a process that holds a transaction is killed, the change
// is undone at once, long before the deadline.
func TestKilledTuner(t *testing.T) {
	if dir := os.Getenv(tunerEnv); dir != "" {
		tuner(t, dir)
		return
	}
	if !killedInLab(t) {
		return
	}
	before := fullState(t)
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledTuner$", "-test.v")
	cmd.Env = append(os.Environ(), tunerEnv+"="+dir)
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	holds := false
	for lines := bufio.NewScanner(said); !holds && lines.Scan(); {
		holds = lines.Text() == tunes
	}
	if s := fullState(t); !holds || !strings.Contains(s, "b10a:") {
		t.Fatal("the tuner has not shaped anything")
	}
	runUnbloat(t, 5, "apply", "--wan", "wan", "--shape-up", "1mbit", "--yes", "--state-dir", dir) // the WAN is locked
	runUnbloat(t, 5, "revert", "--state-dir", dir)
	runUnbloat(t, 5, "confirm", "--state-dir", dir)
	killed := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitWatchdog(t, dir)
	if took := time.Since(killed); took > 5*time.Second {
		t.Errorf("the watchdog took %s; its deadline was an hour away, but the tuner was gone", took)
	}
	sameState(t, "after the tuner was killed", before, fullState(t))
}

const (
	tunerEnv = "UNBLOAT_TEST_TUNER"
	tunes    = "it tunes" // printed when the transaction is open
)

func tuner(t *testing.T, dir string) {
	e := engineIn(dir, &counter{})
	tr, err := e.Begin(t.Context(), labPlan(t, plan.FQCoDel, 20*unit.MbitPerSecond, 4*unit.MbitPerSecond), apply.Options{Confirm: time.Hour, Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if err := tr.Retune(t.Context(), labPlan(t, plan.FQCoDel, 20*unit.MbitPerSecond, unit.Rate(4_000_000+i%5*8000))); err != nil {
			t.Fatal(err)
		}
		if err := tr.Extend(time.Hour); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			fmt.Println(tunes)
		}
		time.Sleep(time.Second) // each retune runs some thirty processes
	}
}
