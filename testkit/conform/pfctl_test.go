package conform

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/openbsd"
)

// TestPfctl gives every plan to a real pfctl(8) with -nf, so nothing is loaded.
// The test finds out which grammar it has. pfctl needs interfaces that exist:
// the machine's own, or two that UNBLOAT_PFCTL_INTERFACES names ("em0 em1").
func TestPfctl(t *testing.T) {
	program := given(t, "UNBLOAT_PFCTL", "pfctl of OpenBSD, which may open /dev/pf")
	devices := strings.Fields(os.Getenv("UNBLOAT_PFCTL_INTERFACES"))
	if len(devices) == 0 {
		list, err := net.Interfaces()
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			devices = append(devices, i.Name)
		}
	}
	if len(devices) < 2 {
		t.Skipf("SKIPPED: two interfaces are needed, there are %q; UNBLOAT_PFCTL_INTERFACES names them", devices)
	}
	file := filepath.Join(t.TempDir(), "pf.conf")
	check := func(text string) (string, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		c := exec.Command(program, "-nf", file)
		c.Stdout, c.Stderr = &said, &said
		err := c.Run()
		return said.String(), err
	}
	tried := 0
	for platform, probe := range map[string]string{
		openbsd.Name:     "queue q on " + devices[0] + " flows 16 bandwidth 1M default\n",
		openbsd.NameAltq: "altq on " + devices[0] + " bandwidth 1Mb hfsc queue { q }\nqueue q hfsc ( default )\n",
	} {
		if said, err := check(probe); err != nil {
			t.Logf("it does not speak %s: %s", platform, said)
			continue
		}
		_, err := check(probe + "match out on " + devices[0] + " tos 0x10\n")
		match := err == nil
		for _, c := range matrix(t, platform) {
			if c.Plan.Classes != nil && !match { // ALTQ before 4.6 has no match rules
				continue
			}
			text := pfConf(t, c.Plan, devices)
			said, err := check(text)
			if err != nil || said != "" {
				t.Errorf("%s, %s: %v\n%s\n%s", platform, c.Name, err, said, text)
			}
			tried++
		}
		t.Logf("%s: with match rules: %v", platform, match)
	}
	if tried == 0 {
		t.Errorf("%s speaks neither today's pf.conf nor ALTQ's; may it open /dev/pf?", program)
	}
	t.Logf("%d plans", tried)
}

// pfConf returns a plan's text to paste, on interfaces that exist.
func pfConf(t *testing.T, p plan.Plan, devices []string) string {
	t.Helper()
	p.WAN = devices[0]
	for i, s := range []**plan.Shaper{&p.Up, &p.Down} {
		if *s != nil {
			there := **s
			there.Device = devices[i]
			*s = &there
		}
	}
	text, err := all.Text(p)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "pfctl ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
