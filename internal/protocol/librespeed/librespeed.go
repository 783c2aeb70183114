// Package librespeed is LibreSpeed's protocol, which is requests over HTTP to
// paths of a backend.
package librespeed

import (
	"unbloat/internal/protocol"
	"unbloat/internal/protocol/web"
)

// Protocol is what LibreSpeed's servers speak.
func Protocol() protocol.Protocol {
	return web.Protocol("librespeed", find)
}

// find looks for the backend by the names it goes by.
func find(s *protocol.Session, get web.Get) (web.Endpoints, error) {
	var last error
	for _, n := range [][2]string{{"/backend/", ".php"}, {"/", ".php"}, {"/backend/", ""}, {"/", ""}} {
		name := func(file string) string { return s.Address.Base() + n[0] + file + n[1] }
		if b, err := get(name("empty")); err != nil {
			last = err
		} else if len(b) == 0 {
			return web.Endpoints{Small: name("empty"), Down: name("garbage") + "?ckSize=100", Up: name("empty")}, nil
		}
	}
	return web.Endpoints{}, web.Unreachable("find LibreSpeed's backend", last)
}
