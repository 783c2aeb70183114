// This file has the responsiveness test of networkQuality
// (draft-ietf-ippm-responsiveness): the server's configuration (section 7), and
// a client.

package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
)

// WellKnown is the path of a server's configuration.
const WellKnown = "/.well-known/nq"

// An RPMConfig is a server's configuration. Old clients read the first three URLs,
// clients of the draft the last three.
type RPMConfig struct {
	Version int     `json:"version"`
	URLs    RPMURLs `json:"urls"`
}

// RPMURLs of a Config.
type RPMURLs struct {
	SmallHTTPS  string `json:"small_https_download_url,omitempty"`
	LargeHTTPS  string `json:"large_https_download_url,omitempty"`
	UploadHTTPS string `json:"https_upload_url,omitempty"`
	Small       string `json:"small_download_url,omitempty"`
	Large       string `json:"large_download_url,omitempty"`
	Upload      string `json:"upload_url,omitempty"`
}

// MakeRPMConfig returns the configuration of a server whose endpoints begin with base.
func MakeRPMConfig(base string) RPMConfig {
	small, large, up := base+"/nq/small", base+"/nq/large", base+"/nq/upload"
	return RPMConfig{1, RPMURLs{small, large, up, small, large, up}}
}

// ParseRPMConfig reads a configuration. If it has both spellings the draft's counts. All
// three must be absolute URLs.
func ParseRPMConfig(b []byte) (RPMConfig, error) {
	var c RPMConfig
	if err := json.Unmarshal(b, &c); err != nil {
		return RPMConfig{}, fmt.Errorf("malformed configuration: %w", err)
	}
	for _, u := range []struct{ new, old *string }{
		{&c.URLs.Small, &c.URLs.SmallHTTPS}, {&c.URLs.Large, &c.URLs.LargeHTTPS}, {&c.URLs.Upload, &c.URLs.UploadHTTPS},
	} {
		if *u.new == "" {
			*u.new = *u.old
		}
		p, err := url.Parse(*u.new)
		if err != nil || p.Host == "" || p.Scheme != "https" && p.Scheme != "http" {
			return RPMConfig{}, errors.New("malformed configuration: a URL is missing or not absolute")
		}
	}
	return c, nil
}
