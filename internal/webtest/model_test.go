package webtest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"unbloat/internal/lab/simlab"
)

// aQuestion returns a valid query of the model, with changes.
func aQuestion(change ...string) string {
	q := url.Values{}
	for _, kv := range []string{
		"down=30", "up=5", "rtt=20", "buffer_down=700", "buffer_up=1000", "downloads=2", "uploads=2",
		"calls=1", "web=1", "video=0", "torrent=0", "share=95", "queue=cake",
	} {
		k, v, _ := strings.Cut(kv, "=")
		q.Set(k, v)
	}
	for _, kv := range change {
		k, v, _ := strings.Cut(kv, "=")
		q.Set(k, v)
	}
	return q.Encode()
}

// A question is answered with the simulator's own chart, the second time from
// memory. Nonsense and questions by other sites are refused.
func TestModel(t *testing.T) {
	h, u := serve(t, Options{Simulator: TheSimulator{}})
	status, text, header := request(t, "GET", u+"/api/model?"+aQuestion(), nil)
	var got simlab.Picture
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusOK || header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %.200s: %v", status, text, err)
	}
	q, err := url.ParseQuery(aQuestion())
	if err != nil {
		t.Fatal(err)
	}
	w, canonical, err := question(q, simlab.Queues())
	if err != nil {
		t.Fatal(err)
	}
	want, err := whatIf(w).Answer(t.Context(), nil)
	if err != nil || got.Grade != want.Grade || got.AddedMs != want.AddedMs || got.DownMbps != want.DownMbps || len(got.Loaded.TS) != len(want.Loaded.TS) {
		t.Errorf("%v: served %+v\nwant %+v", err, got.AddedMs, want.AddedMs)
	}
	h.model.turn <- struct{}{} // nothing can be simulated from now on
	if status, again, _ := request(t, "GET", u+"/api/model?"+aQuestion("rtt=20.001"), nil); status != http.StatusOK || again != text {
		t.Errorf("a known question while another is simulated: %d", status)
	}
	<-h.model.turn
	var first simlab.Picture
	if _, text, _ := request(t, "GET", u+"/api/model?"+aQuestion("quick=1"), nil); json.Unmarshal([]byte(text), &first) != nil || first.Grade == "" || len(first.Loaded.TS) >= len(got.Loaded.TS) {
		t.Errorf("a first look: %.200s", text)
	}
	if h.model.kept[canonical] == nil {
		t.Errorf("%q is not remembered", canonical)
	}
	for _, change := range []string{
		"down=0", "down=1001", "down=NaN", "down=Inf", "down=", "up=-1", "rtt=0", "rtt=1e9", "buffer_up=5000", "downloads=1.5",
		"torrent=1000", "calls=17", "share=0", "share=101", "quick=2", "queue=sfq", "queue=",
	} {
		if status, text, _ := request(t, "GET", u+"/api/model?"+aQuestion(change), nil); status != http.StatusBadRequest || !strings.Contains(text, strings.Split(change, "=")[0]) {
			t.Errorf("%s: %d %s", change, status, text)
		}
	}
	if status, _, _ := request(t, "GET", u+"/api/model?"+aQuestion(), nil, "Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Errorf("from another site: %d", status)
	}
	if status, text, header := request(t, "GET", u+"/model", nil); status != http.StatusOK || !strings.Contains(text, "sliders") || header.Get("Content-Security-Policy") == "" {
		t.Errorf("the page: %d", status)
	}
}

// One address may ask only a limited number of questions, one question is
// simulated at a time, too long waits are refused, and few answers are
// remembered.
func TestModelIsBounded(t *testing.T) {
	h, u := serve(t, Options{Simulator: TheSimulator{}})
	h.model.turn <- struct{}{}
	began := time.Now()
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if status, text, _ := request(t, "GET", u+"/api/model?"+aQuestion(), nil); status != http.StatusServiceUnavailable || !strings.Contains(text, "busy") {
				t.Errorf("behind one that takes for ever: %d %s", status, text)
			}
		})
	}
	wg.Wait()
	if took := time.Since(began); took < modelWait || took > 4*modelWait {
		t.Errorf("sent away after %v", took)
	}
	<-h.model.turn
	now := time.Unix(1_000_000, 0)
	refused := 0
	h.now = func() time.Time { return now }
	h.model.quotas = newQuota(3, time.Second)
	for i := range 5 {
		status, _, header := request(t, "GET", u+"/api/model?"+aQuestion("down=1", "up=1", "rtt="+string(rune('1'+i))), nil)
		if status == http.StatusTooManyRequests && header.Get("Retry-After") != "" {
			refused++
		} else if status != http.StatusOK {
			t.Errorf("question %d: %d", i, status)
		}
	}
	if refused != 2 {
		t.Errorf("%d of 5 were refused, want 2", refused)
	}
	for i := range 2 * modelKept {
		h.model.remember(string(rune(i)), []byte("x"))
	}
	if len(h.model.kept) > modelKept || len(h.model.order) != len(h.model.kept) {
		t.Errorf("%d answers are kept, in an order of %d", len(h.model.kept), len(h.model.order))
	}
}
