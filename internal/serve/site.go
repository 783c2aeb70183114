package serve

import (
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"unbloat/web"
)

// A site holds the files of the built page.
type site struct {
	files map[string]*web.PageFile // by path, without the leading slash
}

// newSite reads the built page. Of nil it makes a site that says that this build has none.
func newSite(from fs.FS) *site {
	if from == nil {
		none := &web.PageFile{Kind: "text/plain; charset=utf-8", Plain: []byte("This build of unbloat has no web page.\n")}
		return &site{map[string]*web.PageFile{"index.html": none}}
	}
	files, err := web.ReadPageFiles(from)
	if err != nil {
		panic(err) // it is part of the program
	}
	return &site{files}
}

func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "a page can only be read", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	s.named(w, r, name, http.StatusOK)
}

// named answers with one of the files, and with a status if all is well.
func (s *site) named(w http.ResponseWriter, r *http.Request, name string, status int) {
	f, ok := s.files[name]
	if !ok {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	has := r.Header.Get("If-None-Match")
	if status != http.StatusOK {
		has = "" // the status is news
	}
	header, body, unchanged := f.Answer(r.Header.Get("Accept-Encoding"), has)
	for _, h := range header {
		w.Header().Set(h[0], h[1])
	}
	if unchanged {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the visitor may be gone; HEAD writes nothing
}
