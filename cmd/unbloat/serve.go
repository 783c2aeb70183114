package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"unbloat/internal/serve"
)

func newServeCommand() *cobra.Command {
	var listen string
	var quiet bool
	cmd := &cobra.Command{
		Use:     "serve",
		GroupID: "main",
		Short:   "Run the test server that `unbloat test --server` measures against",
		Long: `Run the test server that ` + "`unbloat test --server`" + ` measures against.

It listens on one port, TCP and UDP; open both in the firewall. Every client
opens a session first; datagrams that carry no session's token are not answered.`,
		Args: exactArgs(0, "no arguments"),
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", ":7676", "`ADDRESS` to listen on, TCP and UDP")
	f.BoolVar(&quiet, "quiet", false, "log warnings only")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		level := slog.LevelInfo
		if quiet {
			level = slog.LevelWarn
		}
		log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
		s, err := serve.Listen(serve.Options{Listen: listen, Log: log})
		if err != nil {
			return &exitError{exitPrecondition, err}
		}
		log.Info("serving", "address", s.Addr())
		err = s.Serve(c.Context())
		log.Info("stopped")
		return err
	}
	return cmd
}
