package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/testkit/conform"
)

// Every command line in the documents must be valid, but for those of the laboratory,
// which its own program checks. A flag that is named on its own must be a flag of some
// command.
func TestDocumentsCommands(t *testing.T) {
	checked, named := conform.Documents(t, "../..", newRootCommand, func(command string) bool { return !slices.Contains([]string{"demo", "lab", "sim"}, command) })
	if checked < 50 {
		t.Errorf("only %d commands were found in the documents", checked)
	}
	flags := map[string]bool{"hmac": true, "help": true} // flags of irtt and cobra
	var collect func(c *cobra.Command)
	collect = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		for _, sub := range c.Commands() {
			collect(sub)
		}
	}
	collect(newRootCommand())
	help, err := os.ReadFile("../unbloat-lab/testdata/frozen/help.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`--([a-z0-9-]+)`).FindAllSubmatch(help, -1) {
		flags[string(m[1])] = true
	}
	for flag, pages := range named {
		if !flags[flag] {
			t.Errorf("%s: no command has the flag --%s", pages, flag)
		}
	}
}

// What documents show as the output of `unbloat plan` is what it prints: a block that
// begins with "$ unbloat plan". A last line of … stands for the last paragraph. -update
// rewrites them.
func TestDocumentsShowWhatIsPrinted(t *testing.T) {
	shown := 0
	block := regexp.MustCompile("(?s)```\n\\$ unbloat plan ([^\n]*)\n(.*?)```\n")
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		was, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		is := block.ReplaceAllStringFunc(string(was), func(b string) string {
			shown++
			m := block.FindStringSubmatch(b)
			out, code, err := runPlanCommand(t, "", strings.Fields(m[1])...)
			if err != nil || code != 0 {
				t.Errorf("%s: unbloat plan %s: exit code %d, %v", page, m[1], code, err)
			}
			if strings.HasSuffix(m[2], "…\n") {
				paragraphs := strings.Split(strings.TrimSpace(out), "\n\n")
				out = strings.Join(paragraphs[:len(paragraphs)-1], "\n\n") + "\n…\n"
			}
			return "```\n$ unbloat plan " + m[1] + "\n" + out + "```\n"
		})
		if d := cmp.Diff(string(was), is); d != "" && *updatePlans {
			if err := os.WriteFile(page, []byte(is), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if d != "" {
			t.Errorf("%s shows what is not printed (-update rewrites it): -shown +printed\n%s", page, d)
		}
	}
	if shown == 0 {
		t.Error("no document shows what `unbloat plan` prints")
	}
}
