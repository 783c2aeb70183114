//go:build router || !linux || !(amd64 || arm64)

package bpf

// foreign is empty: this build reaches no other routers, or has one object alone.
var foreign []byte
