//go:build amd64 || arm64

// Package near tells the processor what memory will be needed soon, so that it
// is there when it is: with thousands of connections a simulation waits for
// memory longer than it computes. A hint changes no result.
package near

import "unsafe"

// Lines asks for that many lines of 64 bytes, at least one, from the one that
// holds p on. The processor goes on at once, and p may be anything.
//
//go:noescape
func Lines(p unsafe.Pointer, lines int)
