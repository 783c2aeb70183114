package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// ManualCommand is the hidden command with which packages are made: it writes the manual
// pages of commands, and of those below them. The caller gives version and files.
func ManualCommand(m Manual, of func() []*cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "manual DIR",
		Short:  "Write the manual pages of all commands into DIR",
		Hidden: true,
		Long: `Writes a manual page (section 1) for each command into DIR, which it makes. The
pages have today's date, or that of SOURCE_DATE_EPOCH (seconds since 1970).`,
		Example: "  unbloat manual ~/.local/share/man/man1",
		Args:    ExactArgs(1, "a directory"),
		RunE:    func(_ *cobra.Command, args []string) error { return writeManual(m, of, args[0]) },
	}
}

func writeManual(m Manual, of func() []*cobra.Command, dir string) error {
	for _, v := range []string{"UNBLOAT_STATE_DIR", "UNBLOAT_ROOT", "UNBLOAT_STORE"} { // they change defaults, which pages name
		if err := os.Unsetenv(v); err != nil {
			return fmt.Errorf("manual: %w", err)
		}
	}
	m.Date = time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		s, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return UsageError("manual: SOURCE_DATE_EPOCH %q: must be seconds since 1970", epoch)
		}
		m.Date = time.Unix(s, 0)
	}
	m.Exits = []Entry{
		{Name: strconv.Itoa(Done), Says: "Done."},
		{Name: strconv.Itoa(Failed), Says: "Failed. What was changed is undone."},
		{Name: strconv.Itoa(Usage), Says: "Wrong usage or bad input."},
		{Name: strconv.Itoa(NoBetter), Says: "Measured, but no better, so nothing was kept."},
		{Name: strconv.Itoa(Invalid), Says: "The measurement is invalid."},
		{Name: strconv.Itoa(Precondition), Says: "A precondition is missing, such as a program, a right or a part of this build."},
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("manual: %w", err)
	}
	for _, c := range of() {
		for _, p := range m.Pages(c) {
			if err := os.WriteFile(filepath.Join(dir, p.Name), []byte(p.Text), 0o644); err != nil {
				return fmt.Errorf("manual: %w", err)
			}
		}
	}
	return nil
}

// Version returns the version that a build was given, or if it was given none
// ("unknown"), the one that Go recorded.
func Version(built string) string {
	if built != "unknown" {
		return built
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
