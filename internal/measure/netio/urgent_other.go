//go:build !linux

package netio

// Urgent asks for nothing on this system.
func Urgent() (release func()) { return func() {} }
