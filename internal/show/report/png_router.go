//go:build router

package report

import (
	"bytes"
	"errors"
)

// The program for routers draws no pictures, and has no fonts for them.

type faces struct{}

func newFaces() faces { return faces{} }

func (f *figure) writePNG(*bytes.Buffer, theme, float64) error {
	return errors.New("this build draws no PNG (build tag router)")
}
