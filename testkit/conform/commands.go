package conform

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Documents fails t for every command line of `unbloat` in the documents of the repository
// at root that the program would refuse: the command exists, with these flags and
// arguments, and the values parse. Only lines whose first word is mine are checked. It
// returns how many were, and the flags that are named on their own.
func Documents(t *testing.T, root string, program func() *cobra.Command, mine func(command string) bool) (checked int, flags map[string][]string) {
	t.Helper()
	whole := regexp.MustCompile(`^#?\s*(?:sudo )?(?:exec )?(?:bin/)?unbloat (.*)$`)
	inline := regexp.MustCompile("`unbloat ([^`\n]*)`")
	flag := regexp.MustCompile("`--([a-z0-9-]+)[ =`]")
	flags = map[string][]string{}
	for _, page := range pages(t, root) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		check := func(command string, complete bool) {
			first, _, _ := strings.Cut(command, " ")
			if !mine(first) {
				return
			}
			checked++
			if err := takes(program(), command, complete); err != nil {
				t.Errorf("%s: unbloat %s: %v", page, command, err)
			}
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
				check(command, true)
			}
			if !fenced {
				prose.WriteString(line + " ") // a command may span two lines
			}
		}
		for _, m := range inline.FindAllStringSubmatch(prose.String(), -1) {
			check(m[1], false)
		}
		for _, m := range flag.FindAllStringSubmatch(prose.String(), -1) {
			flags[m[1]] = append(flags[m[1]], page)
		}
	}
	return checked, flags
}

// Front are the documents in the module's directory, but the one that tells of what was,
// CHANGELOG.md. They are named: Go runs a test again if a directory that it lists has
// changed, and that one changes with each build.
var Front = []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"}

// pages are the documents.
func pages(t *testing.T, root string) (all []string) {
	t.Helper()
	for _, page := range Front {
		all = append(all, filepath.Join(root, page))
	}
	for _, pattern := range []string{"docs/*.md", "docs/evidence/*.md", "docs/examples/*.toml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// takes returns the reason why the program would refuse a command line. If
// complete is false, as within a sentence, required arguments may be missing.
func takes(program *cobra.Command, line string, complete bool) error {
	var args []string
	line = regexp.MustCompile(`\$(\(\(.*?\)\)|\w+)`).ReplaceAllString(line, "1") // a script's variables
	for _, m := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		if strings.ContainsAny(m[2], "|>&") {
			break // from here on it is the shell's
		}
		args = append(args, m[1]+m[2])
	}
	c, rest, err := program.Find(args)
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

// Completed is what a shell is given for the last of the words, without what explains it,
// and whether it may offer files too.
func Completed(t *testing.T, root *cobra.Command, words ...string) (values []string, files bool) {
	t.Helper()
	var out bytes.Buffer
	root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, words...))
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, line := range lines[:len(lines)-1] {
		value, _, _ := strings.Cut(line, "\t")
		values = append(values, value)
	}
	return values, lines[len(lines)-1] == ":0"
}
