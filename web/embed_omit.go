//go:build omit_web

// Package web holds the speed-test page; this build leaves it out.
package web

import "io/fs"

// Files returns nil: a build with the tag omit_web has no page.
func Files() fs.FS { return nil }
