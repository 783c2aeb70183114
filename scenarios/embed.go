// Package scenarios holds the scenario files that come with unbloat, embedded
// so that the program needs nothing beside it.
package scenarios

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed *.toml *.trace
var files embed.FS

// Names returns the names of the embedded scenarios, sorted.
func Names() []string {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err) // the embedded directory is part of the program
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".toml"); ok {
			names = append(names, name)
		}
	}
	return names
}

// Text returns the text of a named scenario.
func Text(name string) ([]byte, error) {
	b, err := files.ReadFile(name + ".toml")
	if err != nil {
		return nil, fmt.Errorf("no scenario is named %q; those that come with unbloat: %s", name, strings.Join(Names(), ", "))
	}
	return b, nil
}

// TracesEnv says in which folder traces are that do not come with unbloat, because
// their licences are others.
const TracesEnv = "UNBLOAT_TRACES"

// Trace returns the text of a trace that a scenario names: one that comes with
// unbloat, else one from the folder that TracesEnv names. The error says what is
// missing; it is an *os.PathError if it was looked for in that folder.
func Trace(name string) ([]byte, error) {
	if b, err := files.ReadFile(name); err == nil {
		return b, nil
	}
	dir := os.Getenv(TracesEnv)
	if dir == "" {
		return nil, &MissingTraceError{name}
	}
	return os.ReadFile(filepath.Join(dir, name))
}

// A MissingTraceError says that a trace does not come with unbloat, and nobody has
// said where it is.
type MissingTraceError struct{ Name string }

func (e *MissingTraceError) Error() string {
	return fmt.Sprintf("the trace %s does not come with unbloat; set %s=DIR to the folder that has it (docs/lab.md)", e.Name, TracesEnv)
}
