//go:build !linux

package netio

import "context"

// OpenAlarm returns an Alarm.
func OpenAlarm(ctx context.Context) Alarm { return NewTimerAlarm(ctx) }
