// Package scenarios holds the scenario files that come with unbloat, embedded
// so that the program needs nothing beside it.
package scenarios

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.toml
var files embed.FS

// Names returns the names of the embedded scenarios, sorted.
func Names() []string {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err) // the embedded directory is part of the program
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".toml"))
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
