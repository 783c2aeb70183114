//go:build unix

package remote_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/cure/remote"
)

// A request that was given up does not reach the router later: when the way there is
// open again, the router's watchdog may have undone what the request belongs to.
func TestLostRequest(t *testing.T) {
	const size = 32 << 10 // the sender's kernel takes it, the way does not
	var whole, reopened atomic.Bool
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if n == size {
			whole.Store(true)
		}
		if r.ProtoMajor != 1 {
			t.Errorf("asked with %s", r.Proto)
		}
		fmt.Fprint(w, `{"status":"ok"}`)
	}))
	web.EnableHTTP2 = true
	web.StartTLS()
	defer web.Close()

	narrow := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2048) })
	}}
	way, err := narrow.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()
	open, over := make(chan struct{}), make(chan struct{})
	go func() { // the way to the router
		defer close(over)
		in, err := way.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := net.Dial("tcp", web.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer out.Close()
		go func() { _, _ = io.Copy(in, out) }()
		if _, err := io.CopyN(out, in, 2<<10); err != nil { // the handshake, and the beginning of the request
			t.Error(err)
			return
		}
		<-open
		_, _ = io.Copy(out, in)
		reopened.Store(true)
	}()
	api, err := remote.NewREST("https://"+way.Addr().String(), "key", "secret", fmt.Sprintf("%x", sha256.Sum256(web.Certificate().Raw)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, _, err := api.Run(ctx, []string{"POST", "/api/x"}, []byte(strings.Repeat("x", size))); err == nil {
		t.Fatal("a request was answered over a way that is closed")
	}
	close(open)
	<-over
	web.Close() // waits for requests
	if !reopened.Load() || whole.Load() {
		t.Errorf("the way was open again: %v; the request that was given up arrived whole: %v", reopened.Load(), whole.Load())
	}
}
