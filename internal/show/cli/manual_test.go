package cli

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// A command whose words mean something to the formatter.
func hostile() *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "Short"}
	c := &cobra.Command{
		Use: "go [A…]", Short: `It's "quoted" \fBnot bold\fR`, Run: func(*cobra.Command, []string) {},
		Long:    ".so /etc/passwd\n'ab is no request\n\nwhat `a-b` and ~ and ^ say: 10 µs\n  indented -x\n\t.TH also\n\n" + strings.Repeat("long ", 60),
		Example: "  .bp\n  tool go 'x' \\ | y",
	}
	c.Flags().String("file", "", "a `FILE` of .things")
	c.Flags().IntP("number", "n", 4, "how many")
	c.Flags().Int("cores", 2, "how many (default: one each)")
	c.Flags().Bool("old", false, "")
	_ = c.Flags().MarkHidden("old")
	root.AddCommand(c, &cobra.Command{Use: "unseen", Hidden: true, Run: c.Run})
	return root
}

// TestPages: a page for each command that is listed, in which no word of a
// command's is taken for a request, and no line is long.
func TestPages(t *testing.T) {
	pages := (&Manual{Version: "v1-2", Date: time.Unix(1700000000, 0), Exits: []Entry{{"0", "Done."}}, Files: []Entry{{"~/x", "a file"}}}).Pages(hostile())
	if len(pages) != 2 || pages[0].Name != "tool.1" || pages[1].Name != "tool-go.1" {
		t.Fatalf("%+v", pages)
	}
	if !strings.Contains(pages[0].Text, ".SH FILES\n") || strings.Contains(pages[1].Text, ".SH FILES\n") {
		t.Error("files belong to the first page alone")
	}
	text := pages[1].Text
	requests := map[string]bool{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			requests[strings.Fields(line)[0]] = true
		}
		if len(line) > 80 {
			t.Errorf("%d bytes: %s", len(line), line)
		}
		for _, b := range []byte(line) {
			if b >= 0x80 {
				t.Errorf("not ASCII: %q", line)
			}
		}
	}
	for _, known := range []string{".TH", ".SH", ".PP", ".TP", ".RS", ".RE", ".nf", ".fi"} {
		if !requests[known] {
			t.Errorf("no %s in\n%s", known, text)
		}
		delete(requests, known)
	}
	if len(requests) > 0 {
		t.Errorf("requests that nobody made: %v", requests)
	}
	for _, want := range []string{`.TH TOOL-GO 1 2023-11-14 "tool v1\-2" "tool"`, `\efBnot bold\efR`, `\fB\-n\fR, \fB\-\-number\fR \fIint\fR`, "how many (default: 4)", "how many (default: one each)", `[u00B5]`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `\-\-old`) || strings.Contains(pages[0].Text, "unseen") {
		t.Error("what is hidden is shown")
	}
}

// TestLint: mandoc finds nothing in them.
func TestLint(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	for _, p := range (&Manual{Version: "1", Date: time.Unix(1700000000, 0)}).Pages(hostile()) {
		c := exec.Command(mandoc, "-T", "lint")
		c.Stdin = strings.NewReader(p.Text)
		if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", p.Name, err, out)
		}
	}
}
