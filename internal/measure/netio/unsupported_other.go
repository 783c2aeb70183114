//go:build !linux

package netio

import (
	"fmt"
	"runtime"
)

// unsupported says what this operating system cannot do.
func unsupported(what string) error {
	return fmt.Errorf("%s: %w on %s", what, ErrNotSupported, runtime.GOOS)
}
