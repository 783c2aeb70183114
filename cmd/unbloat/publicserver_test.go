package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"unbloat/internal/measure/protocol/public"
	"unbloat/internal/show/cli"
)

// TestNoPublicServer: where no public server answers, it is said at once which one is
// looked for, why it can't be used is said when it is known, and the error is a line with
// one remedy.
func TestNoPublicServer(t *testing.T) {
	var said bytes.Buffer
	c := &cobra.Command{}
	c.SetErr(&said)
	c.SetIn(&bytes.Buffer{})
	c.SetContext(t.Context())
	u := use{c: c, command: "test", Finder: public.Finder{Dial: func(context.Context, string, string) (net.Conn, error) {
		if !strings.Contains(said.String(), "looking for a public test server: cloudflare …\n") {
			t.Error("it dials before it says what it does")
		}
		return nil, errors.New("the cable is out")
	}}}
	f := serverFlags{flag: "server", server: public.Auto}
	none := func(chosenServer) error { t.Error("it measures"); return nil }
	err := f.each(u, none)
	if cli.ExitCode(err) != cli.Precondition || err.Error() != "test: no public test server can be used; is this machine connected? With a server of your own: unbloat test --server HOST" {
		t.Errorf("%v", err)
	}
	if strings.Count(said.String(), "the cable is out") != 2 || !strings.Contains(said.String(), "--server mlab agrees to that") {
		t.Errorf("it says\n%s", &said)
	}
	u.quiet = true
	if err := f.each(u, none); !strings.Contains(err.Error(), "the cable is out") {
		t.Errorf("quiet: %v", err)
	}
}
