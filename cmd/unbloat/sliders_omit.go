//go:build omit_lab && !omit_serve

package main

import "unbloat/internal/page"

// newSimulator returns none: the page then offers no sliders.
func newSimulator() page.Simulator { return nil }
