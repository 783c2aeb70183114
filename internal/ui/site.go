package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"unbloat/internal/ui/http1"
)

// A site is the page's files.
type site struct {
	files map[string]*siteFile // by path, as in "/index.html"
}

// A siteFile is one file.
type siteFile struct {
	kind   string // its Content-Type
	tag    string // its ETag
	plain  []byte
	zipped []byte // nil: no smaller
	fixed  bool   // its name changes with what is in it
}

// newSite reads the files.
func newSite(page fs.FS) (*site, error) {
	s := &site{files: map[string]*siteFile{}}
	if page == nil {
		return s, nil
	}
	err := fs.WalkDir(page, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(page, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		f := &siteFile{kind: kindOf(name), tag: `"` + hex.EncodeToString(sum[:12]) + `"`, plain: b, fixed: strings.HasPrefix(name, "assets/")}
		var z bytes.Buffer
		w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		if err == nil {
			err = w.Close()
		}
		if err == nil && z.Len() < len(b)*9/10 {
			f.zipped = z.Bytes()
		}
		s.files["/"+name] = f
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	return s, nil
}

// kindOf is the Content-Type of a file.
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
	case ".woff2":
		return "font/woff2"
	case ".png":
		return "image/png"
	}
	return "application/octet-stream"
}

// answer answers with a file. The page finds its own way behind "/".
func (s *site) answer(r *http1.Request) http1.Response {
	name := r.Path
	if name == "/" {
		name = "/index.html"
	}
	f := s.files[name]
	if f == nil {
		return failure(notFound())
	}
	age := "no-cache" // it is asked for each time, and mostly not sent
	if f.fixed {
		age = "max-age=31536000, immutable"
	}
	header := [][2]string{{"ETag", f.tag}, {"Cache-Control", age}, {"Vary", "Accept-Encoding"}}
	if taken(r.Header["if-none-match"], f.tag) {
		return http1.Response{Status: 304, Header: header}
	}
	header = append(header, [2]string{"Content-Type", f.kind})
	if f.zipped != nil && takes(r.Header["accept-encoding"]) {
		return http1.Response{Status: 200, Header: append(header, [2]string{"Content-Encoding", "gzip"}), Body: f.zipped}
	}
	return http1.Response{Status: 200, Header: header, Body: f.plain}
}

// taken says whether one of a list of ETags is this.
func taken(list, tag string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if t = strings.TrimSpace(t); t == "*" || strings.TrimPrefix(t, "W/") == tag {
			return true
		}
	}
	return false
}

// takes says whether a browser takes gzip.
func takes(encodings string) bool {
	for e := range strings.SplitSeq(encodings, ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(e), ";")
		if name == "gzip" && strings.Trim(strings.ReplaceAll(q, " ", ""), "q=0.") != "" || name == "gzip" && q == "" {
			return true
		}
	}
	return false
}
