package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode"

	"unbloat/internal/cure/platform"
	"unbloat/testkit/await"
)

// owned is what a hostile router or machine has a terminal obey.
const owned = "\x1b]0;owned\x07\x1b[2J\r\u202e\u009b1m"

// A hostile router names an interface, and ends what its tools say, with sequences for
// a terminal; one of its tools fails.
type hostile struct {
	platform.Runner
	mu    sync.Mutex
	fails string
}

func (h *hostile) Run(ctx context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stdout, stderr, err = h.Runner.Run(ctx, argv, stdin)
	evil, quoted := []byte("lan"+owned), []byte(nil)
	if quoted, _ = json.Marshal(string(evil)); json.Valid(stdout) {
		evil = quoted[1 : len(quoted)-1]
	}
	stdout = bytes.ReplaceAll(stdout, []byte("lan"), evil)
	if argv[0] == h.fails {
		return nil, []byte("Error: " + owned + "\n"), io.ErrUnexpectedEOF
	}
	return stdout, append(stderr, owned...), err
}

// obeyed matches what a terminal obeys, and what turns text around.
var obeyed = regexp.MustCompile("[^\\P{C}\n\t]")

// Whatever a router and its tools say, no command prints what a terminal obeys, also
// with --json, which stays JSON.
func TestNothingIsObeyed(t *testing.T) {
	await.NotShort(t)
	s, f := newLinux(t)
	h := &hostile{Runner: f}
	s.router = h
	f.Files["/tmp/dhcp.leases"] = "1 02:00:00:00:00:07 192.168.1.7 phone" + owned + " *\n"
	seen := ""
	for _, c := range []struct{ fails, args string }{
		{"", "status"}, {"", "status --json"}, {"", "doctor --wan wan --json"}, {"", "revert --wan wan"}, {"", "status --wan lan" + owned},
		{"", "why udp:10.1.0.2:5004>203.0.113.9:5004 --json"}, {"", "apply --dry-run --shape-down 20mbit --shape-up 4mbit --wan wan --lan lan"},
		{"tc", "status"}, {"tc", "revert --wan wan"},
	} {
		h.fails = c.fails
		out, code := s.run(t, append(strings.Fields(c.args), "--for", "linux")...)
		if bad := obeyed.FindString(out); bad != "" {
			t.Errorf("%q, where %q fails, exit code %d: it prints %q: %q", c.args, c.fails, code, bad, out)
		}
		if i := strings.IndexByte(out, '{'); strings.Contains(c.args, "json") && i >= 0 && !json.Valid([]byte(out[i:strings.LastIndexByte(out, '}')+1])) {
			t.Errorf("%q: %q", c.args, out)
		}
		seen += out
	}
	if strings.Count(seen, `\u001b]0;owned\u0007`) < 5 {
		t.Errorf("little of what is hostile came so far:\n%s", seen)
	}
}

// All that is printed goes through the outlets: the files themselves are named only
// where a program is started, or a screen drawn.
func TestOneWayOut(t *testing.T) {
	may := map[string]int{
		"events.go":           1, // asks whether the daemon still reads
		"laboratory_other.go": 2, // of the laboratory, which has this program's own
		"lead.go":             3, // asks whether it is a terminal; this program's own output
		"testserver.go":       1, // by a Writer of its own
		"watchdog.go":         1, // a word for who started it, and closed
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`\bos\.Std(out|err)\b|\bfmt\.Print`)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(direct.FindAll(text, -1)); n != may[name] {
			t.Errorf("%s names standard output or error %d times, not %d: print to c.OutOrStdout() or c.ErrOrStderr()", name, n, may[name])
		}
	}
	if !unicode.Is(unicode.C, '\u202e') || obeyed.MatchString("größer\n\t– █") || !obeyed.MatchString("\u202e") {
		t.Error("the test looks for something else than it should")
	}
}
