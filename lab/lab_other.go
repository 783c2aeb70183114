//go:build !linux

package lab

import (
	"context"
	"io"
)

// Init is the guest's first process; only Linux has guests.
func Init(string) error { return needLinux() }

// Agent runs inside a guest; only Linux has guests.
func Agent(context.Context, string) error { return needLinux() }

// BuildKernel needs Debian and its compiler.
func BuildKernel(context.Context, func(string)) (Kernel, error) { return Kernel{}, needLinux() }

func boot(context.Context, Kernel, Guest, io.Writer) ([]byte, spent, error) {
	return nil, spent{}, needLinux()
}

// RunBesideImage runs around a router's image; only Linux can.
func RunBesideImage(context.Context, string) error { return needLinux() }

func bootBeside(context.Context, Guest, io.Writer) (*besideResult, error) { return nil, needLinux() }

func needLinux() error { return &UnsupportedError{Need: "a Linux host"} }
