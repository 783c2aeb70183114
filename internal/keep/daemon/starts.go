package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"unbloat/internal/cure/apply"
)

// A daemon that is started so often, within so long, and never ended as it should,
// follows no line: what it does there may be why it dies.
const (
	mostStarts  = 5
	startWindow = 10 * time.Minute
)

// startsFile is the name of the file that counts starts, in the state directory, which
// a reboot empties.
const startsFile = "unbloatd.starts"

// countStart notes a start at a time since boot, and returns how many there were
// within startWindow, this one too. Without a file that can be written nothing is
// counted.
func countStart(dir string, now time.Duration) int {
	file := filepath.Join(dir, startsFile)
	var before, starts []time.Duration
	if b, err := os.ReadFile(file); err == nil {
		_ = json.Unmarshal(b, &before) // else it counts anew
	}
	for _, at := range before {
		if at <= now && now-at < startWindow {
			starts = append(starts, at)
		}
	}
	starts = append(starts, now)
	if b, err := json.Marshal(starts[max(0, len(starts)-2*mostStarts):]); err == nil {
		_ = apply.WriteFile(file, b, 0o600)
	}
	return len(starts)
}

// forgetStarts says that the daemon ends as it should.
func forgetStarts(dir string) { _ = os.Remove(filepath.Join(dir, startsFile)) }

// careful looks whether the daemon keeps dying, and then says why it follows no line;
// "" if it does not.
func careful(dir string) string {
	n := countStart(dir, apply.Uptime())
	if n < mostStarts {
		return ""
	}
	return fmt.Sprintf("the daemon was started %d times within %s and never shut down properly, so it follows no line and uses the rates of the configuration; its log says why it died; when that is mended, reload it (SIGHUP)", n, startWindow)
}
