package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nftables' messages and groups, which x/sys does not all name.
const (
	nftGroup       = 7  // NFNLGRP_NFTABLES
	nftSubsystem   = 10 // NFNL_SUBSYS_NFTABLES
	nftNewGen      = 15 // NFT_MSG_NEWGEN, which ends each transaction
	nftGenProcID   = 2  // NFTA_GEN_PROC_PID
	nftGenProcName = 3  // NFTA_GEN_PROC_NAME
	nfgenHeader    = 4  // bytes of struct nfgenmsg
)

// Watch tells of changes of links, addresses, default routes, policy routing, traffic control
// and nftables until ctx ends; then it closes the channel. Without nftables, or without the right to
// hear of it, it tells of the rest.
func Watch(ctx context.Context, tell func(Event)) (ended <-chan struct{}, err error) {
	openRoute := func() (*os.File, error) {
		return netlinkSocket(unix.NETLINK_ROUTE, unix.RTMGRP_LINK|unix.RTMGRP_TC|unix.RTMGRP_IPV4_IFADDR|unix.RTMGRP_IPV6_IFADDR|unix.RTMGRP_IPV4_ROUTE|unix.RTMGRP_IPV6_ROUTE|
			1<<(unix.RTNLGRP_IPV4_RULE-1)|1<<(unix.RTNLGRP_IPV6_RULE-1))
	}
	route, err := openRoute()
	if err != nil {
		return nil, fmt.Errorf("hear of changes of the network: %w", err)
	}
	defaults := defaultDevices()
	links, ways := knownLinks(), knownWays() // after the socket was bound, so that nothing is missed
	var readers sync.WaitGroup
	readers.Go(func() {
		hear(ctx, route, openRoute, func(m message) {
			if x := ways.changed(m); x != 0 && links[x].name != "" {
				tell(Event{Rerouted: []string{links[x].name}})
			}
			if !isDefaultRoute(m) {
				links.route(m, tell)
				return
			}
			now := defaultDevices()
			for d := range now {
				if now[d] == "" { // it may come again
					continue
				}
				if defaults[d] != "" && now[d] != defaults[d] {
					tell(Event{Rerouted: []string{defaults[d], now[d]}})
				}
				defaults[d] = now[d]
			}
		}, tell)
	})
	openNft := func() (*os.File, error) { return netlinkSocket(unix.NETLINK_NETFILTER, 1<<(nftGroup-1)) }
	if nft, err := openNft(); err == nil {
		readers.Go(func() { hear(ctx, nft, openNft, func(m message) { nftEvent(m, tell) }, tell) })
	}
	done := make(chan struct{})
	go func() {
		readers.Wait()
		close(done)
	}()
	return done, nil
}

// reopenEvery is the least time between two openings of a socket.
const reopenEvery = 500 * time.Millisecond

// hear calls each with what a socket tells, until ctx ends. One that fails is opened
// anew; what was told meanwhile is lost, so all is looked at.
func hear(ctx context.Context, s *os.File, open func() (*os.File, error), each func(message), tell func(Event)) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		opened := time.Now()
		end := context.AfterFunc(ctx, func() { _ = s.Close() })
		err := readMessages(s, each, func() { tell(Event{}) })
		if end() {
			_ = s.Close()
		}
		if ctx.Err() != nil {
			return
		}
		s = nil
		for wait := reopenEvery - time.Since(opened); s == nil; wait = reopenEvery {
			pause.Reset(wait)
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
			again, failed := open()
			if failed != nil && wait < reopenEvery { // it is said once
				tell(Event{Trouble: fmt.Errorf("hear of changes of the network: %w; to listen again: %w; it is tried again and again", err, failed)})
			}
			s = again
		}
		tell(Event{Trouble: fmt.Errorf("hear of changes of the network: %w; it is listened to again", err)})
	}
}

// netlinkSocket returns a socket that hears groups of a netlink family.
func netlinkSocket(family int, groups uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// A message is one of netlink's.
type message struct {
	kind uint16
	port uint32 // netlink port of who asked for the change: often its process ID
	body []byte
}

// readMessages reads until the socket is closed, or fails. lost is called when the kernel
// had more to tell than there was room for.
func readMessages(s *os.File, each func(message), lost func()) error {
	b := make([]byte, 64<<10)
	for {
		n, err := s.Read(b)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			lost()
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		}
		for rest := b[:n]; len(rest) >= unix.NLMSG_HDRLEN; {
			length := int(binary.NativeEndian.Uint32(rest))
			if length < unix.NLMSG_HDRLEN || length > len(rest) {
				break
			}
			each(message{binary.NativeEndian.Uint16(rest[4:]), binary.NativeEndian.Uint32(rest[12:]), rest[unix.NLMSG_HDRLEN:length]})
			rest = rest[min(align(length), len(rest)):]
		}
	}
}

// align rounds up to netlink's four bytes.
func align(n int) int { return (n + 3) &^ 3 }

// attributes calls f with each attribute.
func attributes(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofRtAttr || length > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^unix.NLA_F_NESTED, b[unix.SizeofRtAttr:length])
		b = b[min(align(length), len(b)):]
	}
}

// isDefaultRoute reports whether a message is of a default route.
func isDefaultRoute(m message) bool {
	const toLength = 1 // place of rtm_dst_len
	return (m.kind == unix.RTM_NEWROUTE || m.kind == unix.RTM_DELROUTE) && len(m.body) >= unix.SizeofRtMsg && m.body[toLength] == 0
}

// defaultDevices returns the interface of the default route that is used, of IPv4 and
// of IPv6; "" if there is none.
func defaultDevices() (out [2]string) {
	for i, table := range []struct {
		file                         string
		to, mask, metric, flags, dev int // fields
	}{{"/proc/net/route", 1, 7, 6, 3, 0}, {"/proc/net/ipv6_route", 0, 1, 5, 8, 9}} {
		text, err := os.ReadFile(table.file)
		if err != nil {
			continue
		}
		base := [2]int{10, 16}[i] // of metrics
		best := uint64(1 << 63)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || strings.Trim(f[table.to], "0") != "" || strings.Trim(f[table.mask], "0") != "" {
				continue
			}
			flags, err := strconv.ParseUint(f[table.flags], 16, 64)
			if err != nil || flags&unix.RTF_UP == 0 || flags&unix.RTF_REJECT != 0 {
				continue
			}
			metric, err := strconv.ParseUint(f[table.metric], base, 64)
			if err == nil && metric < best {
				best, out[i] = metric, f[table.dev]
			}
		}
	}
	return out
}

// links are the interfaces as they were told last, by index.
type links map[int32]link

type link struct {
	name  string
	mtu   uint32
	flags uint32 // that matter here
}

// knownLinks returns the interfaces that are there.
func knownLinks() links {
	out := links{}
	all, _ := net.Interfaces() // without them each counts as new when it is first told of
	for _, i := range all {
		l := link{name: i.Name, mtu: uint32(i.MTU)}
		if i.Flags&net.FlagUp != 0 {
			l.flags = unix.IFF_UP
		}
		out[int32(i.Index)] = l
	}
	return out
}

// route handles a message of rtnetlink.
func (l links) route(m message, tell func(Event)) {
	switch m.kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.body) < unix.SizeofIfInfomsg {
			return
		}
		if m.body[0] == unix.AF_BRIDGE { // a port's state, not the link's
			return
		}
		index := int32(binary.NativeEndian.Uint32(m.body[4:]))
		is := link{flags: binary.NativeEndian.Uint32(m.body[8:]) & unix.IFF_UP}
		wireless := false
		attributes(m.body[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
			switch {
			case kind == unix.IFLA_IFNAME:
				is.name = strings.TrimRight(string(value), "\x00")
			case kind == unix.IFLA_MTU && len(value) == 4:
				is.mtu = binary.NativeEndian.Uint32(value)
			case kind == unix.IFLA_WIRELESS:
				wireless = true
			}
		})
		was, known := l[index]
		switch {
		case m.kind == unix.RTM_DELLINK:
			delete(l, index)
			tell(Event{Replaced: is.name})
		case !known || was.name != is.name || was.mtu != is.mtu:
			l[index] = is
			if known && was.name != is.name {
				tell(Event{Replaced: was.name})
			}
			tell(Event{Replaced: is.name})
		case was.flags != is.flags || !wireless: // a driver's news of its radio are many
			l[index] = is
			tell(Event{})
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWRULE, unix.RTM_DELRULE:
		tell(Event{})
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER:
		tell(Event{By: programOf(int(m.port), ""), Port: m.port})
	}
}

// nftEvent handles a message of nftables: only the one that ends a transaction.
func nftEvent(m message, tell func(Event)) {
	if m.kind != nftSubsystem<<8|nftNewGen || len(m.body) < nfgenHeader {
		return
	}
	pid, name := 0, ""
	attributes(m.body[nfgenHeader:], func(kind uint16, value []byte) {
		switch {
		case kind == nftGenProcID && len(value) == 4:
			pid = int(binary.BigEndian.Uint32(value))
		case kind == nftGenProcName:
			name = strings.TrimRight(string(value), "\x00")
		}
	})
	tell(Event{By: programOf(pid, name)})
}

// programOf names the program that has a process ID, and who started it: a script
// says more than the tc(8) that it runs. It returns name if the process has ended, and
// "" if it works for this daemon.
func programOf(pid int, name string) string {
	if pid <= 0 {
		return name
	}
	comm, parent := processOf(pid)
	if comm == "" {
		return name
	}
	if parent == os.Getpid() {
		return "" // it works for us
	}
	if parent > 1 {
		if of, _ := processOf(parent); of != "" {
			return fmt.Sprintf("%s, started by %s (process %d)", comm, of, parent)
		}
	}
	return fmt.Sprintf("%s (process %d)", comm, pid)
}

// processOf returns a process's name and its parent; "" if there is none.
func processOf(pid int) (comm string, parent int) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", 0
	}
	from, to := strings.IndexByte(string(b), '('), strings.LastIndexByte(string(b), ')')
	if from < 0 || to < from {
		return "", 0
	}
	fields := strings.Fields(string(b[to+1:]))
	if len(fields) > 1 {
		parent, _ = strconv.Atoi(fields[1])
	}
	return string(b[from+1 : to]), parent
}

// tie has the kernel kill a program when the thread that starts it ends.
func tie(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
