//go:build !router

package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"rsc.io/qr"

	"unbloat/internal/show/cli"
)

// serverKey returns the key that clients must have: from --key, --key-file, or
// UNBLOAT_KEY. An empty one is an error, since it would admit anybody.
func serverKey(key string, given bool, file string, getenv func(string) (string, bool)) (string, error) {
	switch {
	case given && file != "":
		return "", cli.UsageError("serve: give --key or --key-file, not both")
	case given && key == "":
		return "", cli.UsageError("serve: --key is empty, and would let anybody in; leave it out if that is meant")
	case given:
		return key, nil
	case file != "":
		key, err := readKey(file)
		if err != nil {
			return "", cli.UsageError("serve: --key-file: %w", err)
		}
		return key, nil
	}
	if env, set := getenv("UNBLOAT_KEY"); set {
		if env == "" {
			return "", cli.UsageError("serve: UNBLOAT_KEY is empty, and would let anybody in; unset it if that is meant")
		}
		return env, nil
	}
	return "", nil
}

// printHowTo prints how to use the server from another machine, with a QR code
// of the page's address for a phone.
func printHowTo(w io.Writer, own, web netip.AddrPort, addresses []netip.Addr, key bool) {
	host := own.Addr()
	if host.IsUnspecified() {
		host = netip.Addr{}
		for _, a := range addresses {
			if !a.IsLoopback() && !a.IsLinkLocalUnicast() && (!host.IsValid() || a.Is4() && !host.Is4()) {
				host = a
			}
		}
		if !host.IsValid() {
			host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
	}
	server := host.String()
	if own.Port() != 7676 {
		server = net.JoinHostPort(host.String(), strconv.Itoa(int(own.Port())))
	}
	more := ""
	if key {
		more = " --key-file FILE"
	}
	fmt.Fprintf(w, "\nMeasure against this server from the other end of the line:\n  unbloat test --server %s%s\n", server, more)
	if !web.IsValid() {
		return
	}
	page := "http://" + net.JoinHostPort(host.String(), strconv.Itoa(int(web.Port()))) + "/"
	fmt.Fprintf(w, "or open %s in a browser.\n\n", page)
	if code, err := qr.Encode(page, qr.L); err == nil {
		fmt.Fprintln(cli.Raw(w), halfBlocks(code))
	}
	fmt.Fprintln(w, "Ctrl-C ends it.")
}

// halfBlocks draws a code, dark on light in any terminal, with two rows of
// modules in a row of characters.
func halfBlocks(code *qr.Code) string {
	const quiet = 2 // modules of margin
	var b strings.Builder
	light := func(x, y int) bool { return !code.Black(x, y) }
	for y := -quiet; y < code.Size+quiet; y += 2 {
		b.WriteString("  \x1b[30;107m")
		for x := -quiet; x < code.Size+quiet; x++ {
			switch up, low := light(x, y), light(x, y+1); {
			case up && low:
				b.WriteByte(' ')
			case up:
				b.WriteString("▄")
			case low:
				b.WriteString("▀")
			default:
				b.WriteString("█")
			}
		}
		b.WriteString("\x1b[0m\n")
	}
	return b.String()
}

// ownAddresses returns the addresses of this machine's interfaces.
func ownAddresses() []netip.Addr {
	var out []netip.Addr
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range found {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}
