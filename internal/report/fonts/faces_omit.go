//go:build omit_tui

package fonts

// faces are left out: this build draws no pictures of points.
type faces struct{}

func newFaces() faces { return faces{} }
