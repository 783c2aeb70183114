package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"unbloat/internal/cure/apply"
)

// stateSchema names the layout of the file beside the configuration.
const stateSchema = "unbloat.daemon.state/1"

// A memory is what the daemon remembers over restarts and reboots: which WANs a
// person has turned off. It is written when that changes, and never otherwise.
type memory struct {
	path string

	mu  sync.Mutex
	off []string // keys of WANs

	passing []passing
}

type memoryFile struct {
	Schema string   `json:"schema"`
	Off    []string `json:"off"`
	// Passing is what ends by itself. An older program reads Off alone.
	Passing []passing `json:"passing,omitempty"`
}

// readMemory reads the file; one that is not there says nothing. A file that
// cannot be read is an error: a WAN that is off must not come on by accident.
func readMemory(path string) (*memory, error) {
	m := &memory{path: path}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which WANs are off: %w", err)
	}
	var f memoryFile
	if err := json.Unmarshal(b, &f); err != nil || f.Schema != stateSchema {
		return nil, fmt.Errorf("read which WANs are off: %s is not as the daemon writes it (%w); remove it, and all WANs are on", path, errors.Join(err, fmt.Errorf("schema %q", f.Schema)))
	}
	m.off, m.passing = f.Off, f.Passing
	return m, nil
}

func (m *memory) isOff(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.off, key)
}

// set remembers whether a WAN is off. It holds for this run even if it cannot be
// written.
func (m *memory) set(key string, off bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := slices.ContainsFunc(m.passing, func(p passing) bool { return p.Key == key && p.Machine == "" })
	m.passing = slices.DeleteFunc(m.passing, func(p passing) bool { return p.Key == key && p.Machine == "" })
	if slices.Contains(m.off, key) == off && !was {
		return nil
	}
	m.off = slices.DeleteFunc(m.off, func(k string) bool { return k == key })
	if off {
		m.off = append(m.off, key)
	}
	return m.write()
}

// write writes the file, or removes one that says nothing.
func (m *memory) write() error {
	if len(m.off)+len(m.passing) == 0 {
		if err := os.Remove(m.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remember that it is on: %w", err)
		}
		return nil
	}
	b, err := json.Marshal(memoryFile{stateSchema, append([]string{}, m.off...), m.passing})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(m.path), 0o755)
	}
	if err == nil {
		err = apply.WriteFile(m.path, append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("remember what a person has turned off: %w; it stays off only until the daemon starts again", err)
	}
	return nil
}
