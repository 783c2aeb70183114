package webtest

import (
	"net/url"
	"testing"

	"unbloat/internal/lab/simlab"
)

// FuzzQuestion: a question of the sliders is refused, or has a canonical form
// with the same meaning.
func FuzzQuestion(f *testing.F) {
	const all = "&down=30&up=5&rtt=20&buffer_down=100.004&buffer_up=1000&downloads=1&uploads=2&calls=3&web=0&video=0&torrent=60&share=95.5"
	f.Add("queue=" + noQueue + all)
	for _, q := range simlab.Queues() {
		f.Add("queue=" + q + all)
	}
	f.Add("down=-1&up=1e9&x=y")
	f.Fuzz(func(t *testing.T, s string) {
		q, err := url.ParseQuery(s)
		if err != nil {
			return
		}
		_, canonical, err := question(q, simlab.Queues())
		if err != nil {
			return
		}
		again, err := url.ParseQuery(canonical)
		if err != nil {
			t.Fatalf("%q → %q: %v", s, canonical, err)
		}
		if !again.Has("share") { // without a queue it means nothing
			again.Set("share", "100")
		}
		if _, twice, err := question(again, simlab.Queues()); err != nil || twice != canonical {
			t.Fatalf("%q → %q → %q: %v", s, canonical, twice, err)
		}
	})
}
