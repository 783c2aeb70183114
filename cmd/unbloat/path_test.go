package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/path"
	"unbloat/internal/measure/phases"
	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
)

// runPathCommand runs `path` and returns its output, its messages and its exit code.
func runPathCommand(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	c := newPathCommand()
	var o, e bytes.Buffer
	c.SetOut(&o)
	c.SetErr(&e)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	c.SetContext(t.Context())
	err := c.Execute()
	var exit *cli.Error
	switch {
	case err == nil:
		return o.String(), e.String(), cli.Done
	case errors.As(err, &exit):
		return o.String(), e.String() + err.Error(), exit.Code
	}
	return o.String(), e.String() + err.Error(), cli.Failed
}

// Wrong usage is refused before anything is sent.
func TestPathUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "one HOST"},
		{"127.0.0.1 127.0.0.2", "one HOST"},
		{"127.0.0.1 --direction sideways", "--direction"},
		{"127.0.0.1 --flows 0", "--flows"},
		{"127.0.0.1 --interval 10ms", "--interval"},
		{"127.0.0.1 --idle 1ms", "--idle"},
		{"127.0.0.1 --seconds 1h", "--seconds"},
		{"127.0.0.1 --max-hops 65", "--max-hops"},
		{"127.0.0.1 --home-hops -2", "--home-hops"},
		{"127.0.0.1 --bytes 20", "--bytes"},
		{"127.0.0.1 --way pigeon", "--way"},
		{"127.0.0.1 -4 -6", "-4 and -6"},
		{"127.0.0.1 --load ftp://x", "--load"},
		{"127.0.0.1 -6", "no such host"},
	} {
		out, errs, code := runPathCommand(t, strings.Fields(c.args)...)
		if code != cli.Usage || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("path %s: exit code %d, %q %q", c.args, code, out, errs)
		}
	}
}

// A missing load server has the exit code of preconditions.
func TestPathNoServer(t *testing.T) {
	_, errs, code := runPathCommand(t, "127.0.0.1", "--load", "127.0.0.1:1")
	if code != cli.Precondition || !strings.Contains(errs, "unbloat serve") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// On this machine itself: one hop, as text and as JSON. UDP probes need no
// privileges on Linux.
func TestPathLoopback(t *testing.T) {
	await.NotShort(t)
	s, err := netio.DialHops(netio.NewClock(), netip.MustParseAddr("127.0.0.1"), netio.HopAuto)
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	s.Close()
	args := []string{"127.0.0.1", "--idle", "2", "--interval", "200ms"}
	out, errs, code := runPathCommand(t, append(args, "--report")...)
	if code != cli.Done || !strings.Contains(out, "  1.|-- 127.0.0.1 ") || !strings.Contains(errs, "idle") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	out, errs, code = runPathCommand(t, append(args, "--json", "--quiet")...)
	var r path.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if code != cli.Done || errs != "" || r.Schema != path.Schema || len(r.Hops) != 1 || !r.Reached || r.Hops[0].Idle.Received == 0 {
		t.Errorf("exit code %d, %s: %s", code, errs, out)
	}
}

// Errors have the exit codes of the contract.
func TestPathErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{path.ErrUnknownHost, cli.Precondition},
		{&phases.AddressError{}, cli.Usage},
		{phases.ErrUnreachable, cli.Precondition},
		{phases.ErrRefused, cli.Precondition},
		{netio.ErrNoRoute, cli.Precondition},
		{netio.ErrNotAllowed, cli.Precondition},
		{netio.ErrNotSupported, cli.Precondition},
		{path.ErrInterrupted, cli.Failed},
	} {
		var e *cli.Error
		if err := pathError("no-such-host.invalid", fmt.Errorf("trace: %w", c.err)); !errors.As(err, &e) || e.Code != c.code {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}

// A machine that forwards for a home is the router, and has no hop of the home before its
// line; one with containers alone is not.
func TestOnRouter(t *testing.T) {
	at := func(name, addr string) link { return link{name, []netip.Addr{netip.MustParseAddr(addr)}} }
	wan, home, containers := at("eth0", "100.64.0.2"), at("br-lan", "192.168.1.1"), at("br-0123456789ab", "172.18.0.1")
	for name, c := range map[string]struct {
		forwards bool
		links    []link
		want     bool
	}{
		"a router":               {true, []link{wan, home}, true},
		"it does not forward":    {false, []link{wan, home}, false},
		"a PC":                   {true, []link{wan}, false},
		"a PC with containers":   {true, []link{wan, containers, at("docker0", "172.17.0.1")}, false},
		"a server with a tunnel": {true, []link{wan, at("wg0", "10.8.0.1")}, false},
	} {
		if got := routes(wan.addrs[0], c.forwards, c.links); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
