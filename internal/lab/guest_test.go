package lab_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
)

// The home is wired as the scenario says: idle pings take the line's round trip.
func TestGuestPing(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.Host(1)}) {
		return
	}
	out, err := exec.CommandContext(t.Context(), "ping", "-c", "5", "-i", "0.2", lab.ServerAddr).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "5 received") {
		t.Fatal("pings were lost on an idle line")
	}
}

// Time in the guest is virtual: an hour passes in a moment.
func TestGuestTimeIsVirtual(t *testing.T) {
	if os.Getenv("UNBLOAT_LABTEST_BINARY") == "" {
		start := time.Now()
		labtest.Inside(t, labtest.Options{})
		if d := time.Since(start); d > 2*time.Minute {
			t.Fatalf("an hour of virtual time took %v", d)
		}
		return
	}
	start := time.Now()
	select {
	case <-time.After(time.Hour):
	case <-context.Background().Done():
	}
	if d := time.Since(start); d < time.Hour || d > time.Hour+time.Second {
		t.Fatalf("slept %v", d)
	}
}
