//go:build omit_ui

// Package ui holds the router's page; this build leaves it out.
package ui

import "io/fs"

// Files returns nil: a build with the tag omit_ui has no page.
func Files() fs.FS { return nil }
