package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"unbloat/guard"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/show/cli"
	"unbloat/reason"
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
	fs.StringVar(&f.key, "key", "", "shared `KEY` of the server (default: UNBLOAT_KEY of the environment)")
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
		return cli.UsageError("%s: --%s is missing: run `unbloat serve` at the other end of the line, and name it here; or use a public server: --%s %s", command, f.flag, f.flag, defaultServer)
	}
	if f.server == "" {
		return cli.UsageError("%s: --%s is missing: run `unbloat serve` at the other end of the line, and name it here", command, f.flag)
	}
	server, err := nearest(ctx, guard.NewVisibleWriter(os.Stderr), f.server)
	if err != nil {
		return err
	}
	f.server = server
	if err := checkServer(ctx, f.server); err != nil {
		return cli.UsageError("%s: --%s: %w", command, f.flag, err)
	}
	if err := protocolsOf(ctx).Check("localhost", f.ping); err != nil {
		return cli.UsageError("%s: %w", command, err)
	}
	if f.pin != "" {
		if _, err := protocol.ParsePin(f.pin); err != nil {
			return cli.UsageError("%s: --pin: %w", command, err)
		}
	}
	if f.keyFile == "" {
		f.key = cmp.Or(f.key, os.Getenv("UNBLOAT_KEY"))
		return nil
	}
	if f.key != "" {
		return cli.UsageError("%s: give --key or --key-file, not both", command)
	}
	key, err := readKey(f.keyFile)
	if err != nil {
		return cli.UsageError("%s: --key-file: %w", command, err)
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
func (f *serverFlags) options(agent string, spec phases.ProbeSpec) protocol.Options {
	return protocol.Options{Probe: spec, Agent: agent, Ping: f.ping, Pin: f.pin, Insecure: f.insecure, Key: f.key}
}

// dialSteady opens a session for commands that compare many measurements of one
// line. If the server's own probes are requests over TCP, it probes with ping
// instead.
func (f *serverFlags) dialSteady(ctx context.Context, s chosenServer, agent, cc string) (phases.Tester, error) {
	o := s.options(f.options(agent, phases.ProbeSpec{}))
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
func checkCC(ctx context.Context, client phases.Tester, cc string) error {
	if c, ok := client.(*phases.Client); ok {
		return c.CheckCC(ctx, cc)
	}
	return netio.CheckCC(cc)
}
