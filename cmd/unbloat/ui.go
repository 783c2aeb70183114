package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
)

// newUICommand is `unbloat ui`.
func newUICommand() *cobra.Command {
	c := cli.Family(&cobra.Command{
		Use:     "ui",
		Short:   "Get into the router's page, which the daemon serves",
		GroupID: "main",
		Long: "The daemon serves a page for browsers of the home, if its configuration has [ui] with\n" +
			"listen (docs/daemon.md).",
		Example: "  unbloat ui token",
	})
	c.AddCommand(newUITokenCommand())
	return c
}

// A shownPage is the output of `ui token --json`.
type shownPage struct {
	Schema string `json:"schema"`
	daemon.Page
}

func newUITokenCommand() *cobra.Command {
	var stateDir string
	var asJSON, again bool
	c := &cobra.Command{
		Use:   "token",
		Short: "Print where the router's page is, and the token that sets its password",
		Long: "The page asks for this token once, to set the password: whoever can run this command may\n" +
			"change the router anyway. With TLS it prints the fingerprint of the page's certificate,\n" +
			"to compare with what the browser shows.",
		Example: "  unbloat ui token\n  unbloat ui token --new",
		Args:    cli.ExactArgs(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := askPage(c.Context(), stateDir, again)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(shownPage{"unbloat.ui.token/1", p})
			}
			w := c.OutOrStdout()
			fmt.Fprintf(w, "page:        %s\n", strings.Join(p.URLs, "\n             "))
			if p.Fingerprint != "" {
				fmt.Fprintf(w, "certificate: SHA-256 %s\n", spaced(p.Fingerprint))
			}
			if p.Token == "" {
				fmt.Fprintln(w, "It has a password. If you have forgotten it: unbloat ui token --new")
				return nil
			}
			fmt.Fprintf(w, "token:       %s\nOpen the page and give it this token; then choose a password.\n", p.Token)
			return nil
		},
	}
	fs := c.Flags()
	fs.StringVar(&stateDir, "state-dir", stateDirOf(os.Getenv), "where the daemon's socket is")
	fs.BoolVar(&asJSON, "json", false, "print one JSON object")
	fs.BoolVar(&again, "new", false, "make a new token, which can replace a password that is set already")
	return c
}

// askPage asks the daemon how its page is reached.
func askPage(ctx context.Context, stateDir string, again bool) (p daemon.Page, err error) {
	ctx, cancel := context.WithTimeout(ctx, daemonStatusTime)
	defer cancel()
	d, err := daemon.Dial(ctx, daemon.Socket(stateDir))
	if errors.Is(err, daemon.ErrNoDaemon) {
		return p, changeError(&platform.PreconditionError{Doing: "ask for the page's token", What: "no daemon runs here, or this user may not reach it", Remedy: "run it as root; `unbloat daemon` serves the page"})
	}
	if err != nil {
		return p, err
	}
	defer d.Close()
	err = d.Call(ctx, daemon.MethodPage, "", "", daemon.PageParams{NewToken: again}, &p)
	return p, changeError(err)
}

// spaced writes a fingerprint as browsers do: AB:CD:….
func spaced(hex string) string {
	var out []string
	for i := 0; i+2 <= len(hex); i += 2 {
		out = append(out, strings.ToUpper(hex[i:i+2]))
	}
	return strings.Join(out, ":")
}
