package webtest

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"unbloat/internal/lab/scenario"
	"unbloat/internal/lab/simlab"
)

// TheSimulator is the laboratory's, as cmd/unbloat provides it to the page.
type TheSimulator struct{}

// Queues implements Simulator.
func (TheSimulator) Queues() []string { return simlab.Queues() }

// Answer implements Simulator.
func (TheSimulator) Answer(ctx context.Context, q Question, breathe func()) (any, error) {
	return whatIf(q).Answer(ctx, breathe)
}

func whatIf(q Question) simlab.WhatIf {
	return simlab.WhatIf{
		Line:      scenario.Line{Down: q.Down, Up: q.Up, RTT: q.RTT, BufferDown: q.BufferDown, BufferUp: q.BufferUp},
		Household: simlab.Household(q.Household), Queue: q.Queue, Share: q.Share, Seed: q.Seed, Quick: q.Quick,
	}
}

// Without a simulator there are no sliders: no page, no answer, no link to
// them. With a simulator there are all three.
func TestSlidersNeedASimulator(t *testing.T) {
	for _, c := range []struct {
		name      string
		simulator Simulator
		status    int
		linked    bool
	}{
		{"none", nil, http.StatusNotFound, false},
		{"one", TheSimulator{}, http.StatusOK, true},
	} {
		_, u := serve(t, Options{Simulator: c.simulator})
		for _, path := range []string{"/model", "/model.html", "/api/model?" + aQuestion()} {
			if status, text, _ := request(t, "GET", u+path, nil); status != c.status {
				t.Errorf("%s simulator: %s: %d %.100s", c.name, path, status, text)
			}
		}
		status, text, _ := request(t, "GET", u+"/", nil)
		if status != http.StatusOK || !strings.Contains(text, "</html>") || strings.Contains(text, `href="/model"`) != c.linked {
			t.Errorf("%s simulator: the page, status %d, links to the sliders: %v", c.name, status, !c.linked)
		}
	}
}
