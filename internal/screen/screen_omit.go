//go:build omit_tui

// Package screen, in a build with the tag omit_tui, shows nothing: progress is
// printed as lines.
package screen

import (
	"os"
	"time"

	"unbloat/internal/live"
)

// Suitable is false: this build has no view.
func Suitable(_, _ *os.File, _ func(string) string) bool { return false }

// OptionsOf returns nothing, since nothing is shown.
func OptionsOf(func(string) string) live.Options { return live.Options{} }

// A Screen is never made in this build.
type Screen struct{}

// Config says what would be shown.
type Config struct {
	In, Out   *os.File
	Options   live.Options
	Draw      func(time.Duration, live.Options) string
	Interrupt func()
}

// Open shows nothing.
func Open(Config) *Screen { return &Screen{} }

// Close does nothing.
func (s *Screen) Close() {}
