package web

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/netio"
)

// hasty is a transport that tells of the answer before it tells of the question.
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

// On a busy machine the answer may be there before the transport tells that
// the question was written: it is timed nevertheless.
func TestSmallGetOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 20 * time.Millisecond
		d, err := smallGet(t.Context(), netio.NewClock(), &http.Client{Transport: hasty{wait}}, "http://192.0.2.1/")
		if err != nil || d != wait {
			t.Errorf("%v, %v", d, err)
		}
	})
}
