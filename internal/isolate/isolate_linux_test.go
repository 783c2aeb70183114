package isolate

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
)

// Other hosts are held back while it lasts, the router itself is not; they
// pass again after Stop, and by themselves when nobody renews the lease.
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
	h, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * Lease / 2) // renewed meanwhile
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
	if out, err := exec.CommandContext(t.Context(), "nft", "list", "tables").CombinedOutput(); err != nil || strings.Contains(string(out), table) {
		t.Errorf("left behind: %s %v", out, err)
	}
	if err := nft(context.Background(), ruleset()); err != nil { // as of a program that died
		t.Fatal(err)
	}
	if reaches() {
		t.Error("the home's traffic passes at first")
	}
	time.Sleep(Lease + time.Second)
	if !reaches() {
		t.Error("the home's traffic is held back though nobody renews the lease")
	}
}
