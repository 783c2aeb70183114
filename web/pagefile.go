// This file holds the files of a web page as servers answer with them: each as
// it is and gzipped, with its type, its ETag, and how long browsers may keep it.

package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A PageFile is one file.
type PageFile struct {
	Kind  string // Content-Type
	Tag   string // ETag, in its quotes; "": none
	Plain []byte
	Gzip  []byte // nil: it would not be smaller
	Fixed bool   // its name changes with what is in it, so browsers may keep it for ever
}

// NewPageFile returns the File of a name and what is in it.
func NewPageFile(name string, text []byte) (*PageFile, error) {
	sum := sha256.Sum256(text)
	f := &PageFile{Kind: kindOf(name), Tag: `"` + hex.EncodeToString(sum[:12]) + `"`, Plain: text, Fixed: strings.HasPrefix(name, "assets/")}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, _ = z.Write(text) // a bytes.Buffer takes everything
	if err := z.Close(); err != nil {
		return nil, err
	}
	if b.Len() < len(text) {
		f.Gzip = b.Bytes()
	}
	return f, nil
}

// ReadPageFiles reads all files, by path, as in "assets/a.js".
func ReadPageFiles(from fs.FS) (map[string]*PageFile, error) {
	out := map[string]*PageFile{}
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		out[name], err = NewPageFile(name, text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the page's files: %w", err)
	}
	return out, nil
}

// kindOf returns a file's content type. The system's tables are not asked, because they
// differ from system to system.
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

// Answer returns the body and headers of an answer to a request with such headers;
// unchanged says that the browser has the file, and the answer is 304 without a body.
func (f *PageFile) Answer(acceptEncoding, ifNoneMatch string) (header [][2]string, body []byte, unchanged bool) {
	age := "no-cache" // it is asked for each time, and mostly not sent
	if f.Fixed {
		age = "public, max-age=31536000, immutable"
	}
	header = [][2]string{{"Cache-Control", age}, {"Vary", "Accept-Encoding"}}
	if f.Tag != "" {
		header = append(header, [2]string{"ETag", f.Tag})
		if has(ifNoneMatch, f.Tag) {
			return header, nil, true
		}
	}
	header = append(header, [2]string{"Content-Type", f.Kind})
	if f.Gzip != nil && TakesGzip(acceptEncoding) {
		return append(header, [2]string{"Content-Encoding", "gzip"}), f.Gzip, false
	}
	return header, f.Plain, false
}

// has says whether one of a list of ETags is this.
func has(list, tag string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if t = strings.TrimSpace(t); t == "*" || strings.TrimPrefix(t, "W/") == tag {
			return true
		}
	}
	return false
}

// TakesGzip reads Accept-Encoding (RFC 9110, 12.5.3): gzip, unless its weight is 0.
func TakesGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(part, " ", ""), ";")
		if strings.EqualFold(name, "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ToLower(weight), "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}
