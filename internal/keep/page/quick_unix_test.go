//go:build unix

package page_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/keep/flows"
	"unbloat/testkit/await"
)

// TestPageIsQuickAlone: a browser that is new has the first answer within 25 ms on the
// loopback; and five viewers of a home with a hundred machines and a thousand flows take
// at most 1 % of a core, what their own ends of the connections take with it.
func TestPageIsQuickAlone(t *testing.T) {
	await.NotShort(t)
	await.Quiet(t)
	h := newHome(t)
	h.mu.Lock()
	for i := range 1000 {
		h.flows = append(h.flows, flows.Flow{Protocol: 17, Home: netip.MustParseAddrPort(fmt.Sprintf("192.168.1.%d:%d", i%100+2, i+1)), Far: netip.MustParseAddrPort("198.51.100.1:443"), Up: 1, Down: 1})
	}
	h.mu.Unlock()
	var took []time.Duration
	for range 21 {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		began := time.Now()
		r, err := c.Get(h.url + "/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	const most = 25 * time.Millisecond
	if median := took[len(took)/2]; median > most {
		t.Errorf("the first answer takes %s, at most %s", median, most)
	}
	p := h.open(t)
	const seconds = 8
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	p.stream(t, 2) // what is made once is made
	before, began := cpu(), time.Now()
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { p.streamRaw(t, seconds) })
	}
	all.Wait()
	used, lasted := cpu()-before, time.Since(began)
	share := float64(used) / float64(lasted) * 100
	t.Logf("the first answer: median %s, worst %s; five viewers: %.2f %% of a core over %s", took[len(took)/2], took[len(took)-1], share, lasted.Round(time.Second))
	if share > 1 {
		t.Errorf("five viewers take %.2f %% of a core, at most 1", share)
	}
}

// streamRaw reads the stream for so many updates, without looking at them.
func (p *visit) streamRaw(t *testing.T, n int) {
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.h.url+"/api/stream", nil)
	if err != nil {
		t.Error(err)
		return
	}
	r, err := p.c.Do(q)
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Body.Close()
	buffer := make([]byte, 64<<10)
	for n > 0 {
		k, err := r.Body.Read(buffer)
		if err != nil {
			t.Error(err)
			return
		}
		for i := 1; i < k; i++ {
			if buffer[i] == '\n' && buffer[i-1] == '\n' {
				n--
			}
		}
	}
}
