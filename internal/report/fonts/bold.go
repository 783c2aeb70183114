//go:build !omit_tui

package fonts

import "golang.org/x/image/font/gofont/gobold"

func bold() []byte { return gobold.TTF }
