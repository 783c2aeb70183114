//go:build omit_lab && !omit_serve

package main

import "unbloat/internal/webtest"

// newSimulator returns none: the page then offers no sliders.
func newSimulator() webtest.Simulator { return nil }
