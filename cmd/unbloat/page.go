//go:build !omit_ui && !omit_daemon

package main

import (
	"io/fs"

	"unbloat/web/ui"
)

// pageFiles are those of the router's page.
func pageFiles() fs.FS { return ui.Files() }
