package main

import (
	"bytes"
	"strings"
	"testing"

	"unbloat/internal/show/cli"
)

// What a person asks for a while has a time, and a daemon that takes it back.
func TestWhile(t *testing.T) {
	t.Setenv("SSH_CONNECTION", "")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"off", "1h"}, cli.Precondition, "no daemon runs"},
		{[]string{"boost", "1h", "192.168.1.20"}, cli.Precondition, "no daemon runs"},
		{[]string{"boost", "1h"}, cli.Usage, "say which machine"},
		{[]string{"off", "soon"}, cli.Usage, "give the time"},
		{[]string{"off", "-1h"}, cli.Usage, ""},
		{[]string{"off"}, cli.Usage, "one TIME"},
	} {
		root := newRootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append(c.args, "--state-dir", t.TempDir()))
		err := root.ExecuteContext(t.Context())
		if err != nil {
			out.WriteString(err.Error())
		}
		if code := cli.ExitCode(err); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: exit %d, want %d with %q: %s", c.args, code, c.code, c.want, &out)
		}
	}
	env := func(string) string { return "fe80::1%br-lan 51000 192.168.1.1 22" }
	if got := sshClient(env); got != "fe80::1" {
		t.Errorf("the machine is %q", got)
	}
}
