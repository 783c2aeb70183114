package protocol_test

import (
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/protocol"

	"golang.org/x/sys/unix"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// If a clock is set or the path changes during a load, the measurement is
// invalid and says why. Without such a change the same line is valid.
func TestChangesMidway(t *testing.T) {
	if !labtest.Inside(t, home(30*unit.MbitPerSecond, 5*unit.MbitPerSecond, 0)) {
		return
	}
	for _, w := range []struct {
		name   string
		change func() error
		why    string
	}{
		{"nothing", func() error { return nil }, ""},
		{"clock", func() error {
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
				return err
			}
			now.Sec += 3600
			return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
		}, "clock was set"},
		{"path", func() error { // as with three more routers on the path
			return labtest.In(t.Context(), lab.NodeServer, "sysctl", "-qw", "net.ipv4.ip_default_ttl=61").Run()
		}, "path to the server changed"},
	} {
		c := dialed(t, lab.Server(), protocol.Options{})
		idle, err := c.Phase(t.Context(), phases.PhaseSpec{Name: verdict.PhaseIdle, Duration: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		changed := make(chan error, 1)
		timer := time.AfterFunc(2*time.Second, func() { changed <- w.change() })
		load, err := c.Phase(t.Context(), phases.PhaseSpec{Name: verdict.PhaseDownload, Duration: 4 * time.Second, FlowsDown: 4})
		timer.Stop()
		if err != nil {
			t.Fatal(err)
		}
		if err := <-changed; err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		got := c.Judge("", []phases.RawPhase{*idle, *load})
		if got.Valid != (w.why == "") || !strings.Contains(strings.Join(got.InvalidReasons, " "), w.why) {
			t.Errorf("%s: valid %v, %q", w.name, got.Valid, got.InvalidReasons)
		}
		t.Logf("%s: p95 %.1f ms, %q", w.name, got.Download.Latency.RTTMs.P95, got.InvalidReasons)
		c.Close()
	}
}
