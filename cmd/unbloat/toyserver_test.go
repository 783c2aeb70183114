package main

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/measure/protocol/all"
	"unbloat/internal/measure/protocol/testdata/toy"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
)

// TestToyServer: a new kind of test server is one directory and one line in the
// list of protocols. The program reads its addresses and measures with it, and
// has no other code for it.
func TestToyServer(t *testing.T) {
	await.NotShort(t)
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- toy.Serve(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	at := "toy://" + l.Addr().String()
	args := []string{"--server", at, "--seconds", "1", "--idle", "1", "--flows", "2", "--json", "--quiet", "--ping", at, "--no-store"}
	if out, _, code, err := runTestCommand(t, args...); code != cli.Usage || err == nil || !strings.Contains(err.Error(), "no test protocol") {
		t.Fatalf("without the line: exit code %d, %v, %s", code, err, out)
	}
	with := withProtocols(t.Context(), append(all.Protocols(), toy.Protocol()))
	if known := protocolsOf(with).Schemes(); !slices.Contains(known, "toy") {
		t.Errorf("known are %q", known)
	}
	out, _, code, err := runTestCommandIn(with, args...)
	if code != cli.Done && code != cli.Invalid { // on a busy machine the measurement may be invalid
		t.Fatalf("exit code %d, %v", code, err)
	}
	var got verdict.Test
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if got.Server != at || len(got.Phases()) != 4 {
		t.Fatalf("server %q, %d phases", got.Server, len(got.Phases()))
	}
	for _, p := range got.Phases() {
		if p.Latency.Received == 0 || (p.FlowsDown > 0) != (p.GoodputDownBps > 0) || (p.FlowsUp > 0) != (p.GoodputUpBps > 0) {
			t.Errorf("%s: %d answers, %d flows down with %v bit/s, %d up with %v bit/s",
				p.Name, p.Latency.Received, p.FlowsDown, p.GoodputDownBps, p.FlowsUp, p.GoodputUpBps)
		}
	}
	if s := got.Idle.Secondary; len(s) != 1 || !strings.HasPrefix(s[0].Name, "toy ") || s[0].Latency.Received == 0 {
		t.Errorf("further probes: %+v", s)
	}
}
