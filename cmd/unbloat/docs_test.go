//go:build !omit_lab

package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every command line of the documents is one that this program takes: the command
// is there, with these flags, values that parse, and as many arguments. A flag that
// a text names alone is a flag of some command.
func TestDocumentsCommands(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/evidence/*.md", "../../docs/examples/*.toml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	flags := map[string]bool{"hmac": true, "help": true} // irtt's and cobra's, and those of all commands
	var collect func(c *cobra.Command)
	collect = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		for _, sub := range c.Commands() {
			collect(sub)
		}
	}
	collect(newRootCommand())

	checked := 0
	whole := regexp.MustCompile(`^#?\s*(?:sudo )?(?:exec )?(?:bin/)?unbloat (.*)$`)
	inline := regexp.MustCompile("`unbloat ([^`\n]*)`")
	flag := regexp.MustCompile("`--([a-z0-9-]+)[ =`]")
	for _, page := range pages {
		if filepath.Base(page) == "CHANGELOG.md" {
			continue // tells of what was, too
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		fenced := false
		var prose strings.Builder
		lines := strings.Split(strings.ReplaceAll(string(text), "\\\n", " "), "\n")
		for _, line := range lines {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
				continue
			}
			if m := whole.FindStringSubmatch(line); m != nil && (fenced || strings.HasSuffix(page, ".toml")) {
				command, _, _ := strings.Cut(m[1], "     ") // a comment stands behind
				command, _, _ = strings.Cut(command, " #")
				checked++
				if err := takes(command, true); err != nil {
					t.Errorf("%s: unbloat %s: %v", page, command, err)
				}
			}
			if !fenced {
				prose.WriteString(line + " ") // a command may be broken over two lines
			}
		}
		for _, m := range inline.FindAllStringSubmatch(prose.String(), -1) {
			checked++
			if err := takes(m[1], false); err != nil {
				t.Errorf("%s: unbloat %s: %v", page, m[1], err)
			}
		}
		for _, m := range flag.FindAllStringSubmatch(prose.String(), -1) {
			if !flags[m[1]] {
				t.Errorf("%s: no command has the flag --%s", page, m[1])
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d commands were found in the documents", checked)
	}
}

// takes says why the program would refuse a command line, before it does anything.
// One in the middle of a sentence may lack what its command needs.
func takes(line string, complete bool) error {
	var args []string
	line = regexp.MustCompile(`\$(\(\(.*?\)\)|\w+)`).ReplaceAllString(line, "1") // a script's variables
	for _, m := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		if strings.ContainsAny(m[2], "|>&") {
			break // the shell's
		}
		args = append(args, m[1]+m[2])
	}
	c, rest, err := newRootCommand().Find(args)
	if err != nil {
		return err
	}
	err = c.ParseFlags(rest)
	var value *pflag.ValueRequiredError
	switch {
	case errors.Is(err, pflag.ErrHelp), !complete && errors.As(err, &value):
		return nil
	case err != nil:
		return err
	case complete:
		return c.ValidateArgs(c.Flags().Args())
	}
	return nil
}
