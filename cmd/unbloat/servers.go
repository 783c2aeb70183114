//go:build !router

package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/measure/protocol/public"
	"unbloat/internal/show/cli"
)

// newServerList returns the handler of /servers.json. It reads the file for
// each request, so a new list needs no restart.
func newServerList(file string, log *slog.Logger) (http.Handler, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the list of servers: %w", err)
	}
	l, _, err := public.ReadList(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w; `unbloat servers sign` makes one", file, err)
	}
	if left := time.Until(l.Until); left <= 0 {
		log.Warn("the list of servers is too old: clients refuse it", "until", l.Until)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := os.ReadFile(file)
		if err != nil {
			log.Warn("read the list of servers", "reason", err)
			http.Error(w, "the list cannot be read", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "max-age=300")
		_, _ = w.Write(text) // a client that is gone is not our error
	}), nil
}

// newServersCommand returns the commands that make and sign lists of servers.
func newServersCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "servers",
		GroupID: "main",
		Short:   "Sign a list of test servers, from which clients choose the nearest",
		Long: `Clients choose a server by delay from a list that any of the servers hands out at
/servers.json (serve --servers FILE):

  unbloat test --server list:https://test.example.net/servers.json#KEY

KEY is the public key of whoever signs the list. A list without that signature,
or one that is too old, is refused; so sign a new one in time.`,
		Example: "  unbloat servers new-key list.key\n  unbloat servers sign --key-file list.key --for 30d -o servers.json Bern=bern.example.net:7676 Basel=basel.example.net:7676",
	}
	c.AddCommand(newKeyCommand(), newSignCommand())
	return c
}

func newKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "new-key FILE",
		Short:   "Make a key of Ed25519 to sign with, and print its public key",
		Example: "  unbloat servers new-key servers.key",
		Args:    cli.ExactArgs(1, "one FILE for the key"),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := os.Lstat(args[0]); err == nil {
				return cli.UsageError("servers new-key: %s is there already; a new key would make every client refuse the list", args[0])
			}
			file, public, err := public.NewKey()
			if err != nil {
				return fmt.Errorf("servers new-key: %w", err)
			}
			if err := cli.WriteFile(args[0], file, 0o600); err != nil {
				return fmt.Errorf("servers new-key: %w", err)
			}
			fmt.Fprintln(c.OutOrStdout(), public)
			return nil
		},
	}
}

func newSignCommand() *cobra.Command {
	var keyFile, output string
	life := daysValue(30 * 24 * time.Hour)
	c := &cobra.Command{
		Use:     "sign --key-file FILE -o FILE [NAME=]HOST:PORT…",
		Short:   "Sign a list of these servers",
		Example: "  unbloat servers sign --key-file servers.key -o servers.json Berlin=192.0.2.7:7676 192.0.2.8:7676",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case keyFile == "":
				return cli.UsageError("servers sign: --key-file is missing; `unbloat servers new-key FILE` makes one")
			case output == "":
				return cli.UsageError("servers sign: -o FILE is missing, such as -o servers.json")
			}
			text, err := os.ReadFile(keyFile)
			if err != nil {
				return cli.UsageError("servers sign: %w", err)
			}
			key, err := public.ReadKey(text)
			if err != nil {
				return cli.UsageError("servers sign: key %s: %w", keyFile, err)
			}
			now := time.Now()
			l := public.List{Made: now, Until: now.Add(time.Duration(life))}
			for _, a := range args {
				name, address, is := strings.Cut(a, "=")
				if !is {
					name, address = "", a
				}
				l.Servers = append(l.Servers, public.Listed{Name: name, Address: address})
			}
			out, err := public.SignList(key, l)
			if err != nil {
				return cli.UsageError("servers sign: %w", err)
			}
			return cli.WriteFile(output, out, 0o644)
		},
	}
	c.Flags().StringVar(&keyFile, "key-file", "", "`FILE` with the key to sign with")
	c.Flags().StringVarP(&output, "output", "o", "", "write to `FILE`")
	c.Flags().Var(&life, "for", "how long the list is valid")
	return c
}
