//go:build omit_tui

package report

import (
	"bytes"
	"errors"
)

// writePNG is left out of builds for routers, whose flash is small.
func (f *figure) writePNG(*bytes.Buffer, theme, float64) error {
	return errors.New("this build draws no PNG (build tag omit_tui); choose .svg or .html, or make the picture from the JSON on another machine with `unbloat report`")
}
