package proc

import (
	"errors"
	"io"
)

// errUnsupported says that transactions need a Unix system.
var errUnsupported = errors.New("changing a router is supported on Unix systems only; use --router ssh://…")

// TryLock is not supported here.
func TryLock(string) (*Lock, error) { return nil, errUnsupported }

// Detach is not supported here.
func Detach([]string, string) (int, io.ReadCloser, error) { return 0, nil, errUnsupported }

// IgnoreHangup does nothing here.
func IgnoreHangup() {}
