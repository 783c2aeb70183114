package webtest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A site holds the files of the built page, each as it is and gzipped.
type site struct{ files map[string]file } // by path, without the leading slash

type file struct {
	kind        string // Content-Type
	plain, gzip []byte
}

// slidersPage is the file of the page of sliders. In other pages, what offers it
// stands between the two marks.
const (
	slidersPage  = "model.html"
	slidersBegin = "<!--sliders-->"
	slidersEnd   = "<!--/sliders-->"
)

// newSite reads the built page, without the page of sliders and what offers it
// unless sliders is set. Of nil it makes a site that says that this build has none.
func newSite(from fs.FS, sliders bool) *site {
	s := &site{files: map[string]file{}}
	if from == nil {
		s.files["index.html"] = file{kind: "text/plain; charset=utf-8", plain: []byte("This build of unbloat has no web page.\n")}
		return s
	}
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		if name == slidersPage && !sliders {
			return nil
		}
		if before, rest, ok := bytes.Cut(text, []byte(slidersBegin)); ok && !sliders {
			_, after, _ := bytes.Cut(rest, []byte(slidersEnd))
			text = slices.Concat(before, after)
		}
		f := file{kind: kindOf(name), plain: text}
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		_, _ = z.Write(text) // a bytes.Buffer takes everything
		_ = z.Close()
		if b.Len() < len(text) {
			f.gzip = b.Bytes()
		}
		s.files[name] = f
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("read the embedded page: %v", err)) // it is part of the program
	}
	return s
}

// kindOf returns a file's content type; the system's tables are not asked,
// because they differ from system to system.
func kindOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".webmanifest":
		return "application/manifest+json"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
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
	s.named(w, r, name)
}

// named answers with one of the files.
func (s *site) named(w http.ResponseWriter, r *http.Request, name string) {
	f, ok := s.files[name]
	if !ok {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	cache := "no-cache"
	if strings.HasPrefix(name, "assets/") { // their names change with their content
		cache = "public, max-age=31536000, immutable"
	}
	w.Header().Set("Cache-Control", cache)
	f.write(w, r, http.StatusOK)
}

// write answers with the file, gzipped for clients that accept it.
func (f file) write(w http.ResponseWriter, r *http.Request, status int) {
	body := f.plain
	set := w.Header().Set
	set("Content-Type", f.kind)
	set("Vary", "Accept-Encoding")
	if f.gzip != nil && takesGzip(r.Header.Get("Accept-Encoding")) {
		set("Content-Encoding", "gzip")
		body = f.gzip
	}
	set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the visitor may be gone; HEAD writes nothing
}

// takesGzip reads Accept-Encoding (RFC 9110, 12.5.3): gzip, unless its weight is 0.
func takesGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(part, " ", ""), ";")
		if strings.EqualFold(name, "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ToLower(weight), "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}
