//go:build !omit_ui

// Package ui holds the router's page as it is built: `scripts/web build` makes dist
// from the TypeScript beside it, and dist is kept with the sources, so that
// building the program needs no node.
package ui

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files returns the built page: index.html and what it loads.
func Files() fs.FS {
	f, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // only of an invalid path
	}
	return f
}
