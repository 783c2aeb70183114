// Package web holds the pages as they are built: the test server's speed test, and the
// router's. `scripts/web build` makes dist and ui/dist from the TypeScript beside them,
// and they are kept with the sources, so that building the program needs no node.
package web

import (
	"embed"
	"io/fs"
)

// Two variables, so that a program has the files of the page that it serves alone.
var (
	//go:embed dist
	serverPage embed.FS
	//go:embed ui/dist
	routerPage embed.FS
)

// ServerPage returns the built page of the test server: index.html and what it loads.
func ServerPage() fs.FS { return built(serverPage, "dist") }

// RouterPage returns the built page of the router.
func RouterPage() fs.FS { return built(routerPage, "ui/dist") }

func built(all fs.FS, dir string) fs.FS {
	f, err := fs.Sub(all, dir)
	if err != nil {
		panic(err) // only of an invalid path
	}
	return f
}
