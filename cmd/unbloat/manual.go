package main

import (
	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
)

// newManualCommand returns the one that packages are made with.
func newManualCommand() *cobra.Command {
	return cli.ManualCommand(cli.Manual{
		Version: cli.Version(version),
		Files: []cli.Entry{
			{Name: "~/.config/unbloat/config.toml", Says: "server, key_file, router, wan and language, which flags win over. " + configEnv + " names another file."},
			{Name: "~/.local/share/unbloat/results.db", Says: "Results that were kept. UNBLOAT_STORE names another file or a database."},
			{Name: defaultStateDir, Says: "The journal by which a change of the router is undone. UNBLOAT_STATE_DIR names another directory."},
		},
	}, func() []*cobra.Command { return []*cobra.Command{newRootCommand()} })
}
