package apply

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// JournalSchema names the JSON layout of a Journal.
const JournalSchema = "unbloat.journal/1"

// A Journal is a transaction on disk. It is written before the first change, so
// that a later process can finish or undo it.
type Journal struct {
	Schema     string         `json:"schema"`
	ID         string         `json:"id"`
	WAN        string         `json:"wan"`
	Phase      Phase          `json:"phase"`
	Boot       string         `json:"boot"`        // the boot in which Deadline counts
	Deadline   time.Duration  `json:"deadline_ns"` // uptime at which the watchdog undoes it; Lease: none, as long as the owner runs
	Plan       plan.Plan      `json:"plan"`
	Before     platform.State `json:"before"` // what an undo restores
	Origin     platform.State `json:"origin"` // the state before unbloat
	Wanted     platform.State `json:"wanted"`
	WatchdogAt string         `json:"deadman_at,omitempty"` // address of the watchdog, if it is not on this machine
	Failure    string         `json:"failure,omitempty"`    // why the last undo failed
}

// Lease is the deadline of a transaction that has none while its owner runs.
const Lease time.Duration = math.MaxInt64

// late reports whether the deadline has passed.
func (j *Journal) late(uptime time.Duration) bool { return uptime >= j.Deadline }

// bootID identifies this boot of the machine.
func bootID() string { return BootID() }

// A Record is the last committed change of a WAN. `revert` and the next transaction
// need it.
type Record struct {
	Schema string         `json:"schema"`
	ID     string         `json:"id"`
	WAN    string         `json:"wan"`
	Time   string         `json:"time"` // of the commit, RFC 3339
	Plan   plan.Plan      `json:"plan"`
	Origin platform.State `json:"origin"`
	Wanted platform.State `json:"wanted"`
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

const (
	journalSuffix = ".journal.json"
	recordSuffix  = ".committed.json"
)

func (e *Engine) journalPath(wan string) string { return filepath.Join(e.Dir, wan+journalSuffix) }
func (e *Engine) recordPath(wan string) string  { return filepath.Join(e.Dir, wan+recordSuffix) }

// readJournal returns nil if there is no journal.
func readJournal(path string) (*Journal, error) {
	var j Journal
	found, err := readJSON(path, &j)
	if err == nil && found && j.Schema != JournalSchema {
		err = fmt.Errorf("read journal %s: its schema is %q, not %q; another version of unbloat wrote it; revert with that version", path, j.Schema, JournalSchema)
	}
	if err != nil || !found {
		return nil, err
	}
	return &j, nil
}

// Record returns the last committed change on wan, or nil.
func (e *Engine) Record(wan string) (*Record, error) {
	var r Record
	found, err := readJSON(e.recordPath(wan), &r)
	if err != nil || !found {
		return nil, err
	}
	return &r, nil
}

// RecordID returns the ID of the last committed change on wan, or "". It reads no
// more of the record than that, so it can be called often.
func (e *Engine) RecordID(wan string) (string, error) {
	f, err := guard.OpenOwn(e.recordPath(wan), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the record of %s: %w", wan, err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	for {
		name, err := d.Token()
		if err != nil {
			return "", fmt.Errorf("read the record of %s: %w", wan, err)
		}
		if name != "id" {
			continue
		}
		id, err := d.Token()
		if text, is := id.(string); is && err == nil {
			return text, nil
		}
		return "", fmt.Errorf("read the record of %s: its id is no text (%v)", wan, err)
	}
}

// Pending returns the journal of the open transaction on wan, or nil.
func (e *Engine) Pending(wan string) (*Journal, error) { return readJournal(e.journalPath(wan)) }

// WANs returns the interfaces that have an open transaction or a record.
func (e *Engine) WANs() []string {
	entries, err := os.ReadDir(e.Dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, en := range entries {
		for _, suffix := range []string{journalSuffix, recordSuffix} {
			if wan, ok := strings.CutSuffix(en.Name(), suffix); ok && !slices.Contains(out, wan) {
				out = append(out, wan)
			}
		}
	}
	return out
}

func readJSON(path string, v any) (found bool, err error) {
	f, err := guard.OpenOwn(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var b []byte
	if err == nil {
		defer f.Close()
		b, err = io.ReadAll(f)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("read %s: %w; if you do not need it, remove the file", path, err)
	}
	return true, nil
}

// writeJSON replaces the file at path. A reader finds either the old or the new
// content, even if the machine stops in between.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return WriteFile(path, append(b, '\n'), 0o600)
}

// WriteFile replaces the file at path in one step: it writes and syncs a temporary
// file in the same directory, renames it, and syncs the directory.
func WriteFile(path string, b []byte, mode fs.FileMode) error {
	return writeFile(path, b, func(f *os.File) error { return f.Chmod(mode) })
}

// RewriteFile gives the file at path another content in one step. It stays what it is:
// where the path is a link, what that leads to is replaced, and owner and mode stay.
func RewriteFile(path string, b []byte) error {
	is, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	info, err := os.Stat(is)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return writeFile(is, b, func(f *os.File) error {
		if err := giveTo(f, info); err != nil {
			return fmt.Errorf("keep its owner: %w; give the file to the user who runs this", err)
		}
		return f.Chmod(info.Mode().Perm())
	})
}

// writeFile writes a file that dress has made whose it is to be, and for whom.
func writeFile(path string, b []byte, dress func(*os.File) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".unbloat-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	err = errors.Join(err, dress(f), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	defer d.Close()
	_ = d.Sync() // some file systems cannot sync a directory
	return nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}
