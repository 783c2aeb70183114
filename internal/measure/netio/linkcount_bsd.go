//go:build freebsd || openbsd

package netio

import (
	"fmt"
	"net"

	"golang.org/x/net/route"
)

// A LinkCounter reads the counters of interfaces: two system calls and no process
// each time. What waits in their queues is not told here. Its methods are for one
// goroutine.
type LinkCounter struct{}

// OpenLinkCounter opens one. It needs no privilege.
func OpenLinkCounter() (*LinkCounter, error) { return &LinkCounter{}, nil }

// Read puts the counters of each named interface into the same place of out. An
// interface that is not there has the zero Index, which is no error.
func (c *LinkCounter) Read(names []string, out []LinkCounts) error {
	list, err := route.FetchRIB(0, route.RIBTypeInterface, 0)
	if err != nil {
		return fmt.Errorf("read the counters of interfaces: %w", err)
	}
	for i, name := range names {
		out[i] = LinkCounts{}
		if name == "" {
			continue
		}
		link, err := net.InterfaceByName(name)
		if err != nil {
			continue // it is away
		}
		parseIfinfo(list, ifinfo(), func(c LinkCounts) {
			if c.Index == link.Index {
				out[i] = c
			}
		})
	}
	return nil
}

// Close does nothing here.
func (c *LinkCounter) Close() error { return nil }
