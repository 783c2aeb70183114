//go:build !omit_manual

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/manual"
)

// newManualCommands are those that packages are made with.
func newManualCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use:    "manual DIR",
		Short:  "Write the manual pages of all commands into DIR",
		Hidden: true,
		Long: `Writes a manual page (section 1) for each command into DIR, which it makes. The
pages have today's date, or that of SOURCE_DATE_EPOCH (seconds since 1970).`,
		Example: "  unbloat manual ~/.local/share/man/man1",
		Args:    exactArgs(1, "a directory"),
		RunE:    func(_ *cobra.Command, args []string) error { return writeManual(args[0]) },
	}}
}

func writeManual(dir string) error {
	for _, v := range []string{"UNBLOAT_STATE_DIR", "UNBLOAT_ROOT", "UNBLOAT_STORE"} { // they change defaults, which pages name
		if err := os.Unsetenv(v); err != nil {
			return fmt.Errorf("manual: %w", err)
		}
	}
	date := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		s, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return usageError("manual: SOURCE_DATE_EPOCH %q: must be seconds since 1970", epoch)
		}
		date = time.Unix(s, 0)
	}
	m := manual.Manual{
		Version: toolVersion(), Date: date,
		Exits: []manual.Entry{
			{Name: strconv.Itoa(exitDone), Says: "Done."},
			{Name: strconv.Itoa(exitFailed), Says: "Failed. What was changed is undone."},
			{Name: strconv.Itoa(exitUsage), Says: "Wrong usage or bad input."},
			{Name: strconv.Itoa(exitNoBetter), Says: "Measured, but no better, so nothing was kept."},
			{Name: strconv.Itoa(exitInvalid), Says: "The measurement is invalid."},
			{Name: strconv.Itoa(exitPrecondition), Says: "A precondition is missing, such as a program, a right or a part of this build."},
		},
		Files: []manual.Entry{
			{Name: "~/.config/unbloat/config.toml", Says: "server, key_file, router, wan and language, which flags win over. " + configEnv + " names another file."},
			{Name: "~/.local/share/unbloat/results.db", Says: "Results that were kept. UNBLOAT_STORE names another file or a database."},
			{Name: defaultStateDir, Says: "The journal by which a change of the router is undone. UNBLOAT_STATE_DIR names another directory."},
		},
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("manual: %w", err)
	}
	for _, p := range m.Pages(newRootCommand()) {
		if err := os.WriteFile(filepath.Join(dir, p.Name), []byte(p.Text), 0o644); err != nil {
			return fmt.Errorf("manual: %w", err)
		}
	}
	return nil
}
