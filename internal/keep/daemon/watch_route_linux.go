package daemon

import (
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"
)

// ways are the addresses and the default routes of this machine as they were told last.
// Both are told again and again where routers advertise them (RFC 4861); that is no news.
type ways struct {
	addresses map[addressKey]bool
	routes    map[routeKey]string // gateways, also of those that are gone
}

type addressKey struct {
	index   int32
	address string // as bytes
}

type routeKey struct {
	index    int32
	family   byte
	priority uint32
}

// knownWays returns the addresses that are there.
func knownWays() *ways {
	w := &ways{addresses: map[addressKey]bool{}, routes: map[routeKey]string{}}
	all, _ := net.Interfaces() // without them each address counts as new when it is first told of
	for _, i := range all {
		of, _ := i.Addrs()
		for _, a := range of {
			if n, ok := a.(*net.IPNet); ok {
				ip := n.IP
				if four := ip.To4(); four != nil {
					ip = four
				}
				w.addresses[addressKey{int32(i.Index), string(ip)}] = true
			}
		}
	}
	return w
}

// changed returns the index of the interface that has another address, or whose default
// route has another gateway, since this message; 0: none. Of a default route that goes
// to another interface defaultDevices tells.
func (w *ways) changed(m message) int32 {
	switch m.kind {
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return w.address(m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return w.route(m)
	}
	return 0
}

func (w *ways) address(m message) int32 {
	if len(m.body) < unix.SizeofIfAddrmsg || m.body[3] != unix.RT_SCOPE_UNIVERSE {
		return 0
	}
	k := addressKey{index: int32(binary.NativeEndian.Uint32(m.body[4:]))}
	local := false
	attributes(m.body[unix.SizeofIfAddrmsg:], func(kind uint16, value []byte) {
		// Of a point-to-point link IFA_ADDRESS is the other end's.
		if kind == unix.IFA_LOCAL || kind == unix.IFA_ADDRESS && !local {
			k.address, local = string(value), kind == unix.IFA_LOCAL
		}
	})
	if m.kind == unix.RTM_DELADDR {
		delete(w.addresses, k)
		return 0
	}
	if w.addresses[k] {
		return 0
	}
	w.addresses[k] = true
	return k.index
}

func (w *ways) route(m message) int32 {
	const destination, table, kind = 1, 4, 7 // places in struct rtmsg
	b := m.body
	if len(b) < unix.SizeofRtMsg || b[destination] != 0 || b[table] != unix.RT_TABLE_MAIN || b[kind] != unix.RTN_UNICAST {
		return 0
	}
	k := routeKey{family: b[0]}
	var gateway []byte
	attributes(b[unix.SizeofRtMsg:], func(kind uint16, value []byte) {
		switch {
		case kind == unix.RTA_PRIORITY && len(value) == 4:
			k.priority = binary.NativeEndian.Uint32(value)
		case kind == unix.RTA_OIF && len(value) == 4:
			k.index = int32(binary.NativeEndian.Uint32(value))
		case kind == unix.RTA_GATEWAY, kind == unix.RTA_VIA:
			gateway = value
		}
	})
	was, known := w.routes[k]
	if m.kind == unix.RTM_DELROUTE {
		return 0 // it may come again as it was
	}
	w.routes[k] = string(gateway)
	if !known || was == string(gateway) {
		return 0
	}
	return k.index
}
