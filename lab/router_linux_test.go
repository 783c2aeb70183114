package lab_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/platform"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// needRouter skips a test if this machine cannot run a router's image.
func needRouter(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short, and this boots a router in real time")
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: network namespaces and tap devices of this machine need root")
	}
	if _, err := exec.LookPath(lab.QEMU); err != nil {
		t.Skipf("SKIPPED: there is no %s; install %s", lab.QEMU, lab.Package)
	}
}

// routerImage builds a router's disk image with the script that users have, and
// returns the file and its SSH key.
func routerImage(t *testing.T) (file, key string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "../scripts/router-image", dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 5 {
			t.Skipf("SKIPPED: %s", out)
		}
		t.Fatalf("build the image: %v: %s", err, out)
	}
	return filepath.Join(dir, "router.img"), filepath.Join(dir, "id_ed25519")
}

// operstate matches what the kernel shows about a link only some time after the
// other end is up.
var operstate = regexp.MustCompile(`NO-CARRIER,|,LOWER_UP| state (UNKNOWN|DOWN|UP)`)

// settled leaves out removed (-) and added (+) lines that differ only because a
// link has come up since the first look.
func settled(lines []string) (left []string) {
	count := map[string]int{}
	same := func(line string) string { return operstate.ReplaceAllString(line[1:], "") }
	for _, line := range lines {
		count[same(line)] += map[byte]int{'-': -1, '+': 1}[line[0]]
	}
	for _, line := range lines {
		if count[same(line)] != 0 {
			left = append(left, line)
		}
	}
	return left
}

// A real router between the home and the modem: its image boots in QEMU, the
// program reaches it by SSH as users do, shaping removes the line's seconds of
// queueing, and revert restores the router. The test runs in real time on a
// possibly busy machine, so the bounds are wide. Measured were 2948 ms of
// increase before and 16 to 29 ms with shaping, on two cores with twenty busy
// processes.
func TestRealRouter(t *testing.T) {
	t.Parallel()
	needRouter(t)
	file, key := routerImage(t)
	text, err := os.ReadFile("testdata/real-router.toml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse("testdata/real-router.toml", text)
	if err != nil {
		t.Fatal(err)
	}
	var console strings.Builder
	r, err := lab.Run(t.Context(), s, lab.Options{Cases: []string{"before", "shaped"}, Programs: labtest.Programs(t), Console: &console,
		Router: &lab.Router{Image: file, Identity: key, Address: netip.MustParseAddr(lab.DefaultRouterAddress)}})
	var missing *lab.MissingError
	if errors.As(err, &missing) {
		t.Skipf("SKIPPED: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, console.String())
	}
	t.Logf("%s", console.String())
	t.Logf("up after %.1f s (%s); all of it took %.0f s", r.Router.BootSeconds, r.Router.Accelerator, r.WallSeconds)
	before, shaped := r.Cases[0], r.Cases[1]
	increase := func(c lab.CaseResult) float64 { return loadedPhase(t, c).Latency.IncreaseMs.P95 }
	within(t, "before: p95 increase, ms", increase(before), 1000, math.Inf(1))
	within(t, "shaped: p95 increase, ms", increase(shaped), 0, 300)
	within(t, "shaped: upload, bit/s", loadedPhase(t, shaped).GoodputUpBps, 300e3, 900e3)
	within(t, "shaped: download, bit/s", loadedPhase(t, shaped).GoodputDownBps, 1e6, 3600e3)

	for _, c := range r.Cases {
		if got := ownRates(t, c.Router.Reverted); len(got) != 0 {
			t.Errorf("%s: status after it was undone has %v", c.Name, got)
		}
		for _, line := range settled(c.Router.Left) {
			// ip prints these two, which the module ifb creates when it is
			// loaded.
			if !strings.Contains(line, ": ifb0: ") && !strings.Contains(line, ": ifb1: ") {
				t.Errorf("%s: the router is not as it was: %s", c.Name, line)
			}
		}
	}
	if got := ownRates(t, before.Router.Measured); len(got) != 0 {
		t.Errorf("before: status has %v", got)
	}
	got := ownRates(t, shaped.Router.Measured)
	if got["eth1"] != 900*unit.KbitPerSecond || got["ifb4eth1"] != 3600*unit.KbitPerSecond || len(got) != 2 {
		t.Errorf("shaped: status has %v, want 900 kbit/s on eth1 and 3600 kbit/s on ifb4eth1", got)
	}
}

// A killed run, even with SIGKILL, leaves no process: neither QEMU nor those in
// the namespaces.
func TestRealRouterKilled(t *testing.T) {
	needRouter(t)
	dir := t.TempDir()
	file, key := filepath.Join(dir, "endless.img"), filepath.Join(dir, "key") // with a boot sector that loops for ever
	sector := make([]byte, 512)
	copy(sector, "\xeb\xfe")
	copy(sector[510:], "\x55\xaa")
	for name, text := range map[string][]byte{file: sector, key: []byte("unused")} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said strings.Builder
	cmd := exec.Command(labtest.Programs(t).Unbloat, "lab", "run", "testdata/real-router.toml", "--case", "before", "--router-image", file, "--identity", key)
	cmd.Stderr = &said
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	running := func(program string) (n int) { // processes of this run with that program name
		paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			text, err := os.ReadFile(p)
			name, rest, _ := strings.Cut(string(text), "\x00")
			if err == nil && strings.Contains(rest, dir) && strings.HasSuffix(name, program) {
				n++
			}
		}
		return n
	}
	wait := func(what string, until func() bool) {
		t.Helper()
		if !await.True(30*time.Second, func() bool {
			select {
			case <-ended:
				if strings.Contains(said.String(), " is missing: ") {
					t.Skipf("SKIPPED: %s", said.String())
				}
			default:
			}
			return until()
		}) {
			t.Fatalf("%s: not after 30 s; %d processes\n%s", what, running(""), said.String())
		}
	}
	wait("QEMU runs", func() bool { return running(lab.QEMU) == 1 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	wait("no process is left", func() bool { return running("") == 0 })
}

// loadedPhase returns the phase of a case in which its loads ran.
func loadedPhase(t *testing.T, c lab.CaseResult) *verdict.Phase {
	t.Helper()
	for _, p := range c.Test.Phases() {
		if p.Name == verdict.PhaseLoaded {
			return p.Phase
		}
	}
	t.Fatalf("case %s has no phase with its loads", c.Name)
	return nil
}

// ownRates returns the devices that unbloat shapes, with their rates, by
// `unbloat status`.
func ownRates(t *testing.T, status json.RawMessage) map[string]unit.Rate {
	t.Helper()
	var s struct {
		Platform string            `json:"platform"`
		Shapers  []platform.Shaped `json:"shapers"`
	}
	if err := json.Unmarshal(status, &s); err != nil || s.Platform != "linux" {
		t.Fatalf("status of the router: %v, platform %q", err, s.Platform)
	}
	out := map[string]unit.Rate{}
	for _, x := range s.Shapers {
		if x.Ours {
			out[x.Device] = x.Rate
		}
	}
	return out
}
