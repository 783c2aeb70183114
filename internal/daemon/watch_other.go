//go:build !linux

package daemon

import "context"

// Watch returns nil: nothing tells of changes here, so the daemon looks from time to
// time.
func Watch(context.Context, func(Event)) (ended <-chan struct{}, err error) { return nil, nil }
