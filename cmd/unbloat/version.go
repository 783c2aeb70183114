package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
)

// commit is set by the build: the source's commit, in full.
var commit = ""

// A built is what `version --json` prints.
type built struct {
	Schema    string   `json:"schema"`
	Version   string   `json:"version"`   // "unknown" of a build that was not told
	Commit    string   `json:"commit"`    // of the source; "" if unknown
	Go        string   `json:"go"`        // of the toolchain, such as go1.26.0
	OS        string   `json:"os"`        // Go's name, such as linux
	Arch      string   `json:"arch"`      // Go's name, such as amd64
	Tags      []string `json:"tags"`      // build tags; router leaves out what a router has no room for
	Platforms []string `json:"platforms"` // the routers that it plans for
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		GroupID: "main",
		Short:   "Say which version this is, what it was built from, and for which routers",
		Example: "  unbloat version\n  unbloat version --json",
		Args:    cli.ExactArgs(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			b := thisBuild(driversOf(c.Context()).Names())
			if asJSON {
				return cli.PrintJSON(c.OutOrStdout(), b)
			}
			w := cli.Fit(c.OutOrStdout())
			fmt.Fprintf(w, "unbloat %s (%s, %s/%s)\n", b.Version, b.Go, b.OS, b.Arch)
			if b.Commit != "" {
				fmt.Fprintf(w, "commit: %s\n", b.Commit)
			}
			if len(b.Tags) > 0 {
				fmt.Fprintf(w, "build tags: %s\n", strings.Join(b.Tags, ", "))
			}
			fmt.Fprintf(w, "platforms: %s\n", strings.Join(b.Platforms, ", "))
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// thisBuild is what this program was built from, as far as the build said it.
func thisBuild(platforms []string) built {
	b := built{Schema: "unbloat.version/1", Version: cli.Version(version), Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Tags: []string{}, Platforms: platforms}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "-tags" && s.Value != "":
			b.Tags = strings.Split(s.Value, ",")
		case s.Key == "vcs.revision" && b.Commit == "":
			b.Commit = s.Value
		}
	}
	return b
}
