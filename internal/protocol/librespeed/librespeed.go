// Package librespeed is LibreSpeed's protocol, which is requests over HTTP to
// paths of a backend.
package librespeed

import (
	"fmt"

	"unbloat/internal/protocol"
	"unbloat/internal/protocol/web"
)

// Protocol is what LibreSpeed's servers speak.
func Protocol() protocol.Protocol {
	return web.Protocol("librespeed", find)
}

// find looks for the backend by the names it goes by. It answers a request for "empty"
// with nothing; other web servers answer some path with a page.
func find(s *protocol.Session, get web.Get) (web.Endpoints, error) {
	var last error
	for _, n := range [][2]string{{"/backend/", ".php"}, {"/", ".php"}, {"/backend/", ""}, {"/", ""}} {
		name := func(file string) string { return s.Address.Base() + n[0] + file + n[1] }
		b, err := get(name("empty"))
		switch {
		case err != nil:
			last = err
		case len(b) > 0:
			last = fmt.Errorf("GET %s: %d bytes, where a backend answers with none", name("empty"), len(b))
		default:
			return web.Endpoints{Small: name("empty"), Down: name("garbage") + "?ckSize=100", Up: name("empty")}, nil
		}
	}
	return web.Endpoints{}, web.Unreachable("find LibreSpeed's backend", last)
}
