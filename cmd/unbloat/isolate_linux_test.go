package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
)

// Other hosts' traffic is held back while isolation lasts, but not the router's
// own. It passes again after Stop, after the program's death, and when nobody
// renews the lease.
func TestIsolate(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{}) {
		return
	}
	reaches := func() bool {
		return labtest.In(t.Context(), lab.Host(1), "ping", "-c", "2", "-i", "0.2", "-W", "1", lab.ServerAddr).Run() == nil
	}
	if !reaches() {
		t.Fatal("the home does not reach the server to begin with")
	}
	h, err := isolate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * isolationLease / 2) // renewed in the meantime
	if reaches() {
		t.Error("the home's traffic passes")
	}
	if out, err := exec.CommandContext(t.Context(), "ping", "-c", "2", "-W", "1", lab.ServerAddr).CombinedOutput(); err != nil {
		t.Errorf("the router's own traffic does not pass: %s", out)
	}
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
	if !reaches() {
		t.Error("the home's traffic does not pass after Stop")
	}
	if !noneLeft(t) {
		t.Error("left behind by Stop")
	}
	dieHolding(t)
	if !reaches() {
		t.Error("the home's traffic is held back after the program's death")
	}
	if !noneLeft(t) {
		t.Error("left behind by a program that died")
	}
	if err := holdBack(t.Context(), isolationRules()); err != nil { // as after the death of the shell
		t.Fatal(err)
	}
	if reaches() {
		t.Error("the home's traffic passes at first")
	}
	time.Sleep(isolationLease + time.Second)
	if !reaches() {
		t.Error("the home's traffic is held back though nobody renews the lease")
	}
}

// noneLeft waits at most a second until the rule's table is gone.
func noneLeft(t *testing.T) bool {
	t.Helper()
	return await.True(time.Second, func() bool {
		out, err := exec.CommandContext(t.Context(), "nft", "list", "tables").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return !strings.Contains(string(out), table)
	})
}

// dieHolding starts a program that holds back other hosts' traffic, and kills
// it.
func dieHolding(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestHolder$", "-test.v")
	cmd.Env = append(os.Environ(), "UNBLOAT_HOLD=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	holds := false
	for lines := bufio.NewScanner(out); !holds && lines.Scan(); {
		holds = strings.Contains(lines.Text(), holding)
	}
	if !holds || noneLeft(t) {
		t.Error("the program that is to die holds nobody back")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
}

const holding = "others are held back"

// TestHolder is the program that dieHolding kills.
func TestHolder(t *testing.T) {
	if os.Getenv("UNBLOAT_HOLD") == "" {
		t.Skip("SKIPPED: it only runs as a child of TestIsolate")
	}
	if _, err := isolate(t.Context()); err != nil {
		t.Fatal(err)
	}
	fmt.Println(holding)
	<-t.Context().Done()
}
