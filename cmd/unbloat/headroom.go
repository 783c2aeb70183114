package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/unit"
)

// headroomCheck is the doctor's check that watches the router for some seconds.
func headroomCheck() func(*platform.Examination) {
	return linux.MeasureHeadroom(func(ctx context.Context, d time.Duration) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	})
}

// printHeadroom prints what was measured, and what should shape at a rate of both directions
// together; nil: nothing was.
func printHeadroom(w io.Writer, h *platform.Headroom, asked unit.Rate) {
	if h != nil && h.Valid {
		fmt.Fprintf(w, "headroom: %s\nengine: %s\n", linux.HeadroomSentence(*h), linux.Engine(*h, asked))
	}
}
