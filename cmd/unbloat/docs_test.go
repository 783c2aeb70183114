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

// Every command line in the documents must be valid: the command exists, with
// these flags and arguments, and the values parse. A flag that is named on its
// own must be a flag of some command.
func TestDocumentsCommands(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/evidence/*.md", "../../docs/examples/*.toml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
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
				command, _, _ := strings.Cut(m[1], "     ") // a comment follows
				command, _, _ = strings.Cut(command, " #")
				checked++
				if err := takes(command, true); err != nil {
					t.Errorf("%s: unbloat %s: %v", page, command, err)
				}
			}
			if !fenced {
				prose.WriteString(line + " ") // a command may span two lines
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

// takes returns the reason why the program would refuse a command line. If
// complete is false, as within a sentence, required arguments may be missing.
func takes(line string, complete bool) error {
	var args []string
	line = regexp.MustCompile(`\$(\(\(.*?\)\)|\w+)`).ReplaceAllString(line, "1") // a script's variables
	for _, m := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		if strings.ContainsAny(m[2], "|>&") {
			break // from here on it is the shell's
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
