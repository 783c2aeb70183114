//go:build router || !linux || !(amd64 || arm64)

package bpf

// foreign is nil: this build reaches no other routers, or has one object alone.
func foreign() []byte { return nil }
