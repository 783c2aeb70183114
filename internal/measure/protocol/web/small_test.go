package web

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/measure/netio"
)

// hasty is a transport that reports the answer before it reports that the
// request was sent.
type hasty struct{ wait time.Duration }

func (h hasty) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	trace.GotConn(httptrace.GotConnInfo{})
	time.Sleep(h.wait)
	trace.GotFirstResponseByte()
	time.Sleep(time.Millisecond)
	trace.WroteRequest(httptrace.WroteRequestInfo{})
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// On a busy machine the answer may arrive before the transport has reported
// that the request was sent. It is timed even then.
func TestSmallGetOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 20 * time.Millisecond
		d, err := smallGet(t.Context(), netio.NewClock(), &http.Client{Transport: hasty{wait}}, "http://192.0.2.1/", time.Minute)
		if err != nil || d != wait {
			t.Errorf("%v, %v", d, err)
		}
	})
}
