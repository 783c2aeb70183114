package page

import (
	"io/fs"
	"strings"

	"unbloat/web"
)

// A site is the page's files.
type site struct {
	files map[string]*web.PageFile // by path, without the leading slash
}

// newSite reads the files; of nil there are none.
func newSite(page fs.FS) (*site, error) {
	if page == nil {
		return &site{}, nil
	}
	files, err := web.ReadPageFiles(page)
	return &site{files}, err
}

// answer answers with a file. The page finds its own way behind "/".
func (s *site) answer(r *Request) Response {
	name := strings.TrimPrefix(r.Path, "/")
	if name == "" {
		name = "index.html"
	}
	f := s.files[name]
	if f == nil {
		return failure(notFound())
	}
	header, body, unchanged := f.Answer(r.Header["accept-encoding"], r.Header["if-none-match"])
	if unchanged {
		return Response{Status: 304, Header: header}
	}
	return Response{Status: 200, Header: header, Body: body}
}
