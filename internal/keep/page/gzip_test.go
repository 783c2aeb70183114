package page_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

func unzip(t *testing.T, b []byte) io.Reader {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
