package metrics

import (
	"net/http"
)

// Handler returns what answers GET /metrics with the snapshot of the moment.
func Handler(snapshot func() Snapshot) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", ContentType)
		s := snapshot()
		Write(w, &s)
	})
	return m
}
