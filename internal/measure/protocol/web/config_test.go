package web

import (
	"encoding/json"
	"testing"
)

// FuzzParse: no input panics, and accepted ones have three URLs.
func FuzzParse(f *testing.F) {
	b, err := json.Marshal(MakeRPMConfig("https://example.net"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"version":1,"urls":{"small_https_download_url":"https://a/s","large_https_download_url":"https://a/l","https_upload_url":"https://a/u"}}`))
	f.Add([]byte(`{"urls":{"small_download_url":"//"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseRPMConfig(b); err == nil && (c.URLs.Small == "" || c.URLs.Large == "" || c.URLs.Upload == "") {
			t.Errorf("%+v", c)
		}
	})
}
