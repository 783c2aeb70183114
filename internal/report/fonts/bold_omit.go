//go:build omit_tui

package fonts

import "golang.org/x/image/font/gofont/goregular"

// bold is the regular font: a router's flash has no room for two.
func bold() []byte { return goregular.TTF }
