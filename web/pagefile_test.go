package web_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"unbloat/web"
)

// What a browser gets depends on what it takes and has: gzip or plain, or nothing if the
// file is as it was.
func TestAnswer(t *testing.T) {
	text := []byte("<!doctype html>" + strings.Repeat(" page", 100))
	files, err := web.ReadPageFiles(fstest.MapFS{"index.html": {Data: text}, "assets/a-1.js": {Data: []byte("1")}})
	if err != nil || len(files) != 2 {
		t.Fatal(err, files)
	}
	f := files["index.html"]
	header, body, same := f.Answer("br, gzip;q=0.8", "")
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || same || !bytes.Equal(got, text) || !strings.Contains(fmt.Sprint(header), "[Content-Encoding gzip]") {
		t.Errorf("%v %v", err, header)
	}
	if header, body, _ := f.Answer("identity", `"other"`); !bytes.Equal(body, text) || strings.Contains(fmt.Sprint(header), "gzip]") || !strings.Contains(fmt.Sprint(header), "no-cache") {
		t.Errorf("plain: %v", header)
	}
	for _, has := range []string{f.Tag, "W/" + f.Tag, `"x", ` + f.Tag, "*"} {
		if _, body, same := f.Answer("gzip", has); !same || body != nil {
			t.Errorf("a browser that has %s", has)
		}
	}
	small := files["assets/a-1.js"]
	if header, body, _ := small.Answer("gzip", ""); string(body) != "1" || !strings.Contains(fmt.Sprint(header), "immutable") || small.Tag == f.Tag {
		t.Errorf("a small one: %v", header)
	}
}

func TestTakesGzip(t *testing.T) {
	for accept, want := range map[string]bool{"": false, "gzip": true, "br, GZIP": true, "gzip;q=0": false, "gzip; q=0.5": true, "gzipped": false, "identity": false} {
		if got := web.TakesGzip(accept); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
}
