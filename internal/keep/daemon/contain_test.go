package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/supervise"
)

// TestPanicEndsOneClient: whatever panics while it does what a client asks for, in the
// client's goroutine, in the WAN's loop or in a run, ends that request: its client hears
// that it was an error of the daemon's own and is let go, the log tells the place, a metric
// counts it, and everybody else is served.
func TestPanicEndsOneClient(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		x := linuxTown(t, dir, oneWAN, func(o *Options) {
			o.Log = &log
			o.Work = func(context.Context, []string, []string, io.Writer) (int, error) { panic("a run") }
		})
		defer func() { x.stop() }()
		x.d.mu.Lock()
		x.d.page = func(PageParams) Page { panic("a request") }
		x.d.mu.Unlock()
		_, _ = x.only().call(t.Context(), func(context.Context) (any, error) {
			x.only().router.Why = func(context.Context, plan.Plan, WhyParams) (any, error) { panic("the loop") }
			return nil, nil
		})
		dial := func() (net.Conn, *bufio.Reader) {
			here, there := net.Pipe()
			go (&client{Caller{d: x.d}, there}).answers(t.Context())
			return here, bufio.NewReader(here)
		}
		other, heard := dial()
		defer other.Close()
		for i, method := range []string{MethodPage, MethodWhy} {
			conn, in := dial()
			_, _ = io.WriteString(conn, `{"id":7,"method":"`+method+`","params":{}}`+"\n")
			var r Response
			line, err := in.ReadBytes('\n')
			if err != nil || json.Unmarshal(line, &r) != nil || string(r.ID) != "7" || r.Error == nil || r.Error.Code != CodeInternal {
				t.Errorf("%s is answered with %s, %v", method, line, err)
			}
			if _, err := in.ReadByte(); err == nil {
				t.Errorf("%s: the connection goes on", method)
			}
			if got := x.d.metrics().Panics; got != uint64(i+1) {
				t.Errorf("%s: %d panics", method, got)
			}
			_, _ = io.WriteString(other, `{"id":1,"method":"status","wan":"wan"}`+"\n")
			var is struct{ Result Status }
			if line, err := heard.ReadBytes('\n'); err != nil || json.Unmarshal(line, &is) != nil || len(is.Result.WANs) != 1 || is.Result.WANs[0].State != supervise.InPlace {
				t.Errorf("beside %s: %s, %v", method, line, err)
			}
		}
		again := func() Response {
			return (&client{Caller: Caller{d: x.d}}).respond(t.Context(), []byte(`{"method":"page"}`))
		}
		if r := again(); r.Error == nil || r.Error.Code != CodeInternal {
			t.Errorf("once more: %+v", r)
		}
		looks := x.only().board.status.Looks
		if _, err := ask[Started](t, &Caller{d: x.d}, MethodTest, TestParams{Unattended: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if is, err := ask[RunStatus](t, &Caller{d: x.d}, MethodRun, nil); err != nil || is.State != RunFailed || is.Error == nil || is.Error.Code != CodeInternal {
			t.Errorf("%+v, %v", is, err)
		}
		if s := x.only().board.status; s.State != supervise.InPlace || s.Looks <= looks {
			t.Errorf("afterwards: %+v", s)
		}
		if text := log.String(); x.d.metrics().Panics != 4 || strings.Count(text, "PANIC") != 4 || !strings.Contains(text, "contain_test.go:") {
			t.Errorf("%d panics; the log:\n%s", x.d.metrics().Panics, text)
		}
		for range 100 {
			again()
		}
		if n := strings.Count(log.String(), "PANIC"); n != 10+3 {
			t.Errorf("104 panics are told %d times", n)
		}
	})
}
