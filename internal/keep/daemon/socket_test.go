package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener in memory.
type pipes struct {
	net.Listener
	in chan net.Conn
}

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.in
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error { close(p.in); return nil }

// TestSilentClients: a thousand clients of the socket that say nothing, or half a line, or
// do not read, keep nobody waiting for longer than two seconds, and who has the turn may say
// nothing for as long as he likes; whoever finds no place is told.
func TestSilentClients(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := linuxTown(t, dir, oneWAN, func(*Options) {})
		defer func() { x.stop() }()
		ctx, cancel := context.WithCancel(t.Context())
		l := pipes{in: make(chan net.Conn)}
		all := x.d.serve(ctx, l)
		defer func() { cancel(); l.Close(); all.Wait() }()
		dial := func(text string) net.Conn {
			here, there := net.Pipe()
			l.in <- there
			go io.WriteString(here, text)
			synctest.Wait()
			return here
		}
		asks := func(text string) (r Response) {
			t.Helper()
			c := dial(text)
			defer c.Close()
			line, err := bufio.NewReader(c).ReadBytes('\n')
			if err != nil || json.Unmarshal(line, &r) != nil {
				t.Fatalf("%s is answered with %q, %v", text, line, err)
			}
			return r
		}
		const status = `{"id":1,"method":"status"}` + "\n"
		holder := dial(`{"id":1,"method":"turn","params":{"for":"a test"}}` + "\n")
		held := bufio.NewReader(holder)
		if line, err := held.ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		begin := time.Now()
		for i := range 1000 {
			dial([]string{"", `{"id":`}[i%2])
			if i%100 == 99 {
				if r := asks(status); r.Error != nil {
					t.Errorf("beside %d silent clients: %+v", i+1, r.Error)
				}
			}
		}
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("they were waited for %v", waited)
		}
		for range mostClient - 1 {
			dial(status) // and reads nothing
		}
		if r := asks(status); r.Error == nil || r.Error.Code != CodeBusy {
			t.Errorf("without a place: %+v", r)
		}
		time.Sleep(2 * time.Second)
		if r := asks(status); r.Error != nil {
			t.Errorf("beside clients that do not read: %+v", r.Error)
		}
		time.Sleep(2 * mostIdle)
		go io.WriteString(holder, status)
		if line, err := held.ReadString('\n'); err != nil || x.only().holder == nil {
			t.Errorf("who has the turn: %s, %v", line, err)
		}
		holder.Close()
	})
}
