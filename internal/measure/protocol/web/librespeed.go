// This file has LibreSpeed's protocol, which is requests over HTTP to
// paths of a backend.

package web

import (
	"fmt"

	"unbloat/internal/measure/protocol"
)

// LibreSpeed is what LibreSpeed's servers speak.
func LibreSpeed() protocol.Protocol {
	return Protocol("librespeed", findLibreSpeed)
}

// findLibreSpeed looks for the backend by the names it goes by. It answers a request for "empty"
// with nothing; other web servers answer some path with a page.
func findLibreSpeed(s *protocol.Session, get Get) (Endpoints, error) {
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
			return Endpoints{Small: name("empty"), Down: name("garbage") + "?ckSize=100", Up: name("empty")}, nil
		}
	}
	return Endpoints{}, Unreachable("find LibreSpeed's backend", last)
}
