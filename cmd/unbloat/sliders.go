//go:build !omit_lab && !omit_serve

package main

import (
	"context"

	"unbloat/internal/lab/scenario"
	"unbloat/internal/lab/simlab"
	"unbloat/internal/webtest"
)

// newSimulator returns the simulator for the page of sliders.
func newSimulator() webtest.Simulator { return sliders{} }

// sliders is the laboratory's simulator with the page's interface.
type sliders struct{}

// Queues implements webtest.Simulator.
func (sliders) Queues() []string { return simlab.Queues() }

// Answer implements webtest.Simulator.
func (sliders) Answer(ctx context.Context, q webtest.Question, breathe func()) (any, error) {
	return simlab.WhatIf{
		Line:      scenario.Line{Down: q.Down, Up: q.Up, RTT: q.RTT, BufferDown: q.BufferDown, BufferUp: q.BufferUp},
		Household: simlab.Household(q.Household), Queue: q.Queue, Share: q.Share, Seed: q.Seed, Quick: q.Quick,
	}.Answer(ctx, breathe)
}
