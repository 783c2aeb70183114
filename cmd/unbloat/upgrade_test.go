//go:build linux && !router

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/testkit/await"
)

// activated runs `unbloat serve` with sockets as systemd passes them: as
// descriptors from 3 on, and with the process's own id in the environment. It
// returns when the program serves.
func activated(t *testing.T, sockets []*os.File, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command("sh", slices.Concat([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, os.Args[0], "serve"}, oursAlone, args)...)
	c.Env = append(os.Environ(), asProgram+"=1", fmt.Sprint("LISTEN_FDS=", len(sockets)))
	c.ExtraFiles = sockets
	log, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	serving := make(chan bool, 1)
	go func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if strings.Contains(lines.Text(), "msg=serving") {
				serving <- true
			}
			if strings.Contains(lines.Text(), "nothing listens") {
				t.Error(lines.Text())
			}
		}
		close(serving)
	}()
	select {
	case ok := <-serving:
		if !ok {
			t.Fatal("serve did not begin")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("serve does not begin")
	}
	return c
}

// A control is the control connection of a session, without the rest of a
// client.
type control struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func controlTo(t *testing.T, address string) *control {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &control{t, c, bufio.NewReader(c)}
}

func (c *control) ask(q probe.Request) probe.Reply {
	c.t.Helper()
	if _, err := c.conn.Write(probe.AppendLine(nil, q)); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.in.ReadBytes('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := probe.ParseReply(line)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func hello() probe.Request { return probe.Request{Op: probe.OpHello, Versions: []int{probe.Version}} }

// While one version of the program is replaced by the next, the service manager
// keeps the sockets open. A running session is measured to its end, no new
// client meets a closed port, and the next program serves them.
func TestUpgradeKeepsThePort(t *testing.T) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	address := tcp.Addr().String()
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	if err != nil {
		t.Skipf("SKIPPED: the port is taken for UDP: %v", err)
	}
	web, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var sockets []*os.File
	for _, s := range []interface{ File() (*os.File, error) }{tcp, udp, web} {
		f, err := s.File()
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, f)
	}
	tcp.Close() // the copies in sockets stay open, as with systemd
	udp.Close()
	web.Close()
	args := []string{"--listen", address, "--web", web.Addr().String(), "--state-dir", t.TempDir(), "--drain", "20s"}

	first := activated(t, sockets, args...)
	session := controlTo(t, address)
	if r := session.ask(hello()); r.Token == "" {
		t.Fatalf("%+v", r)
	}
	stream := session.ask(probe.Request{Op: probe.OpUDP, Dir: probe.DirEcho})
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.Until(t, 10*time.Second, "a server that was told to end to let no session in", func() bool {
		c := controlTo(t, address)
		defer c.conn.Close() // or the server waits for it
		return c.ask(hello()).Error != ""
	})
	token, err := probe.ParseToken(stream.StreamToken)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, probe.MinSize)
	probe.PutHeader(p, probe.Header{Kind: probe.KindEcho, Token: token})
	c, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(p); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(p); err != nil {
		t.Errorf("a probe of the session that runs: %v", err)
	}
	session.conn.Close()
	if err := first.Wait(); err != nil {
		t.Errorf("the first program ended with %v", err)
	}

	between := controlTo(t, address) // the kernel accepts it for the next program
	second := activated(t, sockets, args...)
	if r := between.ask(hello()); r.Token == "" {
		t.Errorf("who came in between: %+v", r)
	}
	between.conn.Close()
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("the second program ended with %v", err)
	}
}

// A list of servers is signed, downloaded, and used to choose one. A list that
// is signed with another key is refused.
func TestServerList(t *testing.T) {
	await.NotShort(t)
	dir := t.TempDir()
	program := func(args ...string) (string, error) {
		c := exec.Command(os.Args[0], args...)
		c.Env = append(os.Environ(), asProgram+"=1")
		out, err := c.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	public, err := program("servers", "new-key", dir+"/key")
	if err != nil || len(public) != 64 {
		t.Fatalf("%s %v", public, err)
	}
	if out, err := program("servers", "new-key", dir+"/key"); err == nil {
		t.Errorf("a key was overwritten: %s", out)
	}
	other, err := program("servers", "new-key", dir+"/other")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	if out, err := program("servers", "sign", "--key-file", dir+"/key", "--for", "7d", "-o", dir+"/servers.json", "Away=127.0.0.1:1", "Here="+address); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	url, stop := startServe(t, "--state-dir", dir, "--servers", dir+"/servers.json", "--listen", address)
	defer stop()
	list := "list:" + url + "/servers.json#"
	out, err := program("test", "--server", list+public, "--seconds", "1", "--idle", "1", "--no-store", "--quiet", "--flows", "1")
	if !strings.Contains(out, "the nearest of 2 servers is Here, "+address) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := program("test", "--server", list+other, "--no-store"); err == nil || !strings.Contains(out, "signature") {
		t.Errorf("with another key: %v: %s", err, out)
	}
	if out, err := program("test", "--server", list, "--no-store"); err == nil || !strings.Contains(out, "#KEY") {
		t.Errorf("without a key: %v: %s", err, out)
	}
}
