//go:build !omit_measure

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"unbloat/internal/measure"
	"unbloat/internal/netio"
	"unbloat/internal/protocol"
	"unbloat/internal/reason"
	"unbloat/internal/visible"
)

// serverFlags are the flags that name the test server and how to reach it.
type serverFlags struct {
	flag              string // name of the flag, such as "server"
	server, ping      string
	pin, key, keyFile string
	insecure          bool
}

// register adds the flags. The one that names the server is called flag.
func (f *serverFlags) register(fs *pflag.FlagSet, flag, usage string) {
	f.flag = flag
	fs.StringVar(&f.server, flag, "", usage)
	fs.StringVar(&f.pin, "pin", "", "`SHA256` of the server's certificate, which then needs no authority")
	fs.StringVar(&f.key, "key", "", "shared `KEY` of the server")
	fs.StringVar(&f.keyFile, "key-file", "", "`FILE` whose first line is the server's key")
	fs.BoolVar(&f.insecure, "insecure", false, "accept any TLS certificate")
}

// registerPing adds the flag for an additional probe.
func (f *serverFlags) registerPing(fs *pflag.FlagSet) {
	fs.StringVar(&f.ping, "ping", "", "probe `HOST` too, or instead where the server answers no probes")
}

// serverUsage describes the values of --server.
func serverUsage() string {
	return "test server: `SERVER` is HOST[:PORT], a URL (" + strings.Join(protocolsOf(context.Background()).Schemes(), ", ") + "), list:URL#KEY for the nearest of a signed list, or a public one: " + publicNames()
}

// check refuses an invalid server, and reads the key's file.
func (f *serverFlags) check(ctx context.Context, command string) error {
	if f.server == "" && defaultServer != "" {
		return usageError("%s: --%s is missing: run `unbloat serve` at the other end of the line, and name it here; or use a public server: --%s %s", command, f.flag, f.flag, defaultServer)
	}
	if f.server == "" {
		return usageError("%s: --%s is missing: run `unbloat serve` at the other end of the line, and name it here", command, f.flag)
	}
	server, err := nearest(ctx, visible.NewWriter(os.Stderr), f.server)
	if err != nil {
		return err
	}
	f.server = server
	if err := checkServer(ctx, f.server); err != nil {
		return usageError("%s: --%s: %w", command, f.flag, err)
	}
	if err := protocolsOf(ctx).Check("localhost", f.ping); err != nil {
		return usageError("%s: %w", command, err)
	}
	if f.pin != "" {
		if _, err := protocol.ParsePin(f.pin); err != nil {
			return usageError("%s: --pin: %w", command, err)
		}
	}
	if f.keyFile == "" {
		return nil
	}
	if f.key != "" {
		return usageError("%s: give --key or --key-file, not both", command)
	}
	key, err := readKey(f.keyFile)
	if err != nil {
		return usageError("%s: --key-file: %w", command, err)
	}
	f.key = key
	return nil
}

// checkServer refuses an invalid --server value, without using the network.
func checkServer(ctx context.Context, server string) error {
	if isPublic(server) {
		return nil
	}
	return protocolsOf(ctx).Check(server, "")
}

// checkLanguage refuses an unknown language.
func checkLanguage(tag string) error {
	if _, ok := reason.Find(tag); !ok {
		return fmt.Errorf("%q: must be %s", tag, strings.Join(languageTags(), " or "))
	}
	return nil
}

// options returns the options of a session.
func (f *serverFlags) options(agent string, spec measure.ProbeSpec) protocol.Options {
	return protocol.Options{Probe: spec, Agent: agent, Ping: f.ping, Pin: f.pin, Insecure: f.insecure, Key: f.key}
}

// dialSteady opens a session for commands that compare many measurements of one
// line. If the server's own probes are requests over TCP, it probes with ping
// instead.
func (f *serverFlags) dialSteady(ctx context.Context, s chosenServer, agent, cc string) (measure.Tester, error) {
	o := s.options(f.options(agent, measure.ProbeSpec{}))
	if o.Ping == "" {
		o.Ping = protocolsOf(ctx).PingBeside(ctx, s.server)
	}
	client, err := protocolsOf(ctx).Dial(ctx, s.server, o)
	if err != nil {
		return nil, err
	}
	if err := checkCC(ctx, client, cc); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// checkCC returns an error if this machine or the server lacks a congestion
// control. If the server cannot be asked, only this machine is checked.
func checkCC(ctx context.Context, client measure.Tester, cc string) error {
	if c, ok := client.(*measure.Client); ok {
		return c.CheckCC(ctx, cc)
	}
	return netio.CheckCC(cc)
}
