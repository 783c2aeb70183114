package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/guard"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/protocol/public"
	"unbloat/internal/show/cli"
	"unbloat/reason"
	"unbloat/unit"
)

// publicNames are the values of --server that stand for an operator of public
// servers.
func publicNames() string {
	return strings.Join(append([]string{public.Auto}, public.Order(public.Auto)...), ", ")
}

// isPublic reports whether a --server value stands for public servers.
func isPublic(server string) bool { return len(public.Order(server)) > 0 }

// defaultServer is used if no server is named.
const defaultServer = public.Auto

// A chosenServer is the server to measure with.
type chosenServer struct {
	server string         // as protocol.Dial takes it
	public *public.Server // nil: the server was named by the user
}

// options adds to a session's options what the server needs.
func (s chosenServer) options(o protocol.Options) protocol.Options {
	if s.public != nil {
		o.Key = ""
		o.Endpoints = s.public.Endpoints
	}
	return o
}

// remarks returns the remarks of a result about its server.
func (s chosenServer) remarks() []reason.Reason {
	p := s.public
	if p == nil {
		return nil
	}
	return []reason.Reason{reason.Of(reason.PublicServer, "operator", operator(p), "rtt_ms", unit.Ms(p.RTT), "terms", p.Terms)}
}

// mostWords is the longest text of somebody else that a line of ours shows.
const mostWords = 60

// operator describes who runs a server, and where.
func operator(p *public.Server) string {
	if p.Place == "" {
		return guard.VisibleLine(p.Operator, mostWords)
	}
	return guard.VisibleLine(p.Operator+" ("+p.Place+")", mostWords)
}

// A use is what a command does with a public server.
type use struct {
	c       *cobra.Command
	command string
	often   bool // it loads the line many times
	quiet   bool
	public.Finder
}

// each calls measure with the named server. With public ones it tries one after
// the other, until a measurement is possible.
func (f *serverFlags) each(u use, measure func(chosenServer) error) error {
	if !isPublic(f.server) {
		return measure(chosenServer{server: f.server})
	}
	if f.pin != "" || f.insecure || f.key != "" {
		return cli.UsageError("%s: --pin, --insecure, --key and --key-file go with a server of your own, not with --%s %s", u.command, f.flag, f.server)
	}
	u.Finder.Agent = "unbloat " + u.command
	var failed []string
	fail := func(format string, args ...any) {
		why := fmt.Sprintf(format, args...)
		u.say("%s", why)
		failed = append(failed, why)
	}
	for _, source := range public.Order(f.server) {
		if why := u.unfit(source, f.server == source); why != "" {
			fail("%s: %s", source, why)
			continue
		}
		u.say("looking for a public test server: %s …", source)
		servers, err := u.Find(u.c.Context(), source)
		if err != nil {
			fail("%v", err)
		}
		for i := range servers {
			if !u.announce(&servers[i], f.server == source) {
				fail("%s: you did not agree", source)
				break
			}
			if err = measure(chosenServer{servers[i].URL, &servers[i]}); err == nil || !unusable(u.c.Context(), err) {
				return err
			}
			fail("%s cannot be used: %v", servers[i].URL, err)
		}
		if u.c.Context().Err() != nil {
			return fmt.Errorf("%s: %w; nothing was measured", u.command, cli.ErrInterrupted)
		}
	}
	why := ""
	if u.quiet { // it was not said
		why = " (" + strings.Join(failed, "; ") + ")"
	}
	return cli.Exit(cli.Precondition, fmt.Errorf("%s: no public test server can be used%s; is this machine connected? With a server of your own: unbloat %s --%s HOST",
		u.command, why, u.command, f.flag))
}

// unfit returns why a source's servers must not be used for the command, or "".
func (u *use) unfit(source string, named bool) string {
	if source != public.MLab {
		return ""
	}
	if u.often {
		return "its servers are for single tests, and `unbloat " + u.command + "` loads the line again and again"
	}
	if !named && !u.terminal() {
		return "it publishes what is measured with this line's public address; --server mlab agrees to that"
	}
	return ""
}

// announce prints the server that is used. If it publishes results, the user is
// asked to agree, unless the source was named, which counts as agreement.
func (u *use) announce(p *public.Server, named bool) bool {
	u.say("measuring against %s, %.1f ms away: %s; its terms: %s", operator(p), unit.Ms(p.RTT), p.URL, p.Terms)
	if !p.Publishes {
		return true
	}
	u.say("%s publishes the results of all tests, with this line's public address", operator(p))
	if named {
		return true
	}
	yes, err := ask(u.c.InOrStdin(), u.c.ErrOrStderr(), "Is that all right?", false)
	return err == nil && yes
}

func (u *use) say(format string, args ...any) {
	if !u.quiet {
		cli.Say(u.c.ErrOrStderr(), format, args...)
	}
}

// terminal reports whether the user can be asked.
func (u *use) terminal() bool {
	return !u.quiet && cli.IsKeyboard(u.c.InOrStdin())
}

// unusable reports whether after this error another server should be tried.
func unusable(ctx context.Context, err error) bool {
	return ctx.Err() == nil &&
		(errors.Is(err, phases.ErrUnreachable) || errors.Is(err, phases.ErrRefused) || errors.Is(err, protocol.ErrCertificate))
}
