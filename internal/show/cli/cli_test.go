package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// Programs in an sbin beside a bin of PATH are found, and no others.
func TestSbin(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/local/bin:/usr/bin:/bin:/usr/games": "/usr/local/bin:/usr/bin:/bin:/usr/games:/usr/local/sbin:/usr/sbin:/sbin",
		"/usr/sbin:/usr/bin":                      "/usr/sbin:/usr/bin",
		"/opt/tools":                              "/opt/tools",
		"":                                        "",
	} {
		if got := withSbin(path); got != want {
			t.Errorf("%q: %q", path, got)
		}
	}
}

// All that went wrong is printed, but for what has been printed.
func TestErrorText(t *testing.T) {
	plain, told := errors.New("plain"), Exit(NoBetter, nil)
	for want, err := range map[string]error{
		"":               errors.Join(nil, told),
		"plain":          errors.Join(plain, told),
		"plain\ncoded":   errors.Join(plain, Exit(Usage, errors.New("coded"))),
		"coded\nplain":   Exit(Usage, errors.Join(errors.New("coded"), plain)),
		"a: coded":       fmt.Errorf("a: %w", Exit(Usage, errors.New("coded"))),
		"a: plain, b":    fmt.Errorf("a: %w, %w", plain, errors.New("b")),
		"exit code 3: x": fmt.Errorf("%w: x", told),
	} {
		if got := ErrorText(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Text that is printed by whatever call is made harmless and its errors are kept; the
// program's own sequences go through.
func TestOutlet(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o := newOutlet(w)
	if o.used {
		t.Error("it is used before anything is written")
	}
	_, _ = io.WriteString(o, "a\x1b]0;owned\x07\x1b[2J\r\u202e\u009b1m")
	_, _ = io.Copy(o, strings.NewReader("b\x1b[2J"))
	_, _ = io.WriteString(Raw(o), "\r\x1b[K")
	w.Close()
	got, err := io.ReadAll(r)
	if want := "a\\u001b]0;owned\\u0007\\u001b[2J\\u000d\\u202e\\u009b1mb\\u001b[2J\r\x1b[K"; string(got) != want || err != nil || !o.used {
		t.Errorf("%q, want %q, %v", got, want, err)
	}
	if _, err := io.WriteString(o, "x"); err == nil || o.err == nil {
		t.Error("an error of writing is lost")
	}
	var plain bytes.Buffer
	if Raw(&plain) != io.Writer(&plain) {
		t.Error("another writer is not itself")
	}
}
