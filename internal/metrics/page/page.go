// Package page serves metrics by HTTP. It is apart from package metrics, so that a
// program without HTTP can keep them.
package page

import (
	"net/http"

	"unbloat/internal/metrics"
)

// Handler returns what answers GET /metrics with the snapshot of the moment.
func Handler(snapshot func() metrics.Snapshot) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", metrics.ContentType)
		s := snapshot()
		metrics.Write(w, &s)
	})
	return m
}
