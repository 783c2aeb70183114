// This part writes a container image of the test server as an OCI layout
// (image-spec 1.1): one layer with the program and the certificates of
// authorities, a configuration and a manifest. It needs no daemon, no network
// and no rights, and writes the same bytes for the same input.

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Media types of the image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// user is whom the program runs as; nobody's number on most systems.
const user = 65532

// An image says what the container image holds.
type image struct {
	program, ca string // files
	on          target
	version     string
	created     time.Time
}

// A descriptor points to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type configuration struct {
	Created      string    `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       settings  `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
	History      []history `json:"history"`
}

type settings struct {
	User         string              `json:"User"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts"`
	Entrypoint   []string            `json:"Entrypoint"`
	Cmd          []string            `json:"Cmd"`
	Volumes      map[string]struct{} `json:"Volumes"`
	WorkingDir   string              `json:"WorkingDir"`
	Labels       map[string]string   `json:"Labels"`
	StopSignal   string              `json:"StopSignal"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type history struct {
	Created   string `json:"created"`
	CreatedBy string `json:"created_by"`
}

// write writes the layout into dir, which it makes.
func (o image) write(dir string) error {
	blobs := filepath.Join(dir, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return fmt.Errorf("make the layout's directory: %w", err)
	}
	put := func(mediaType string, b []byte) (descriptor, error) {
		sum := digest(b)
		err := os.WriteFile(filepath.Join(blobs, sum[len("sha256:"):]), b, 0o644)
		return descriptor{MediaType: mediaType, Digest: sum, Size: int64(len(b))}, err
	}
	layer, err := o.layer()
	if err != nil {
		return err
	}
	packed, err := pack(layer)
	if err != nil {
		return err
	}
	at := o.created.Format(time.RFC3339)
	config, err := json.Marshal(configuration{
		Created: at, Architecture: o.on.arch, OS: o.on.os,
		Config: settings{
			User: fmt.Sprintf("%d:%d", user, user), ExposedPorts: ports(), Entrypoint: []string{"/unbloat"},
			Cmd: []string{"serve", "--state-dir", "/var/lib/unbloat"}, Volumes: map[string]struct{}{"/var/lib/unbloat": {}},
			WorkingDir: "/", StopSignal: "SIGTERM",
			Labels: map[string]string{"org.opencontainers.image.title": "unbloat serve", "org.opencontainers.image.version": o.version, "org.opencontainers.image.licenses": "Apache-2.0"},
		},
		RootFS:  rootFS{Type: "layers", DiffIDs: []string{digest(layer)}},
		History: []history{{Created: at, CreatedBy: "contrib/package of unbloat"}},
	})
	if err != nil {
		return err
	}
	var m manifest
	m.SchemaVersion, m.MediaType = 2, typeManifest
	if m.Config, err = put(typeConfig, config); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	l, err := put(typeLayer, packed)
	if err != nil {
		return fmt.Errorf("write the layer: %w", err)
	}
	m.Layers = []descriptor{l}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	top, err := put(typeManifest, b)
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	top.Platform = &platform{Architecture: o.on.arch, OS: o.on.os}
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": "latest"}
	if b, err = json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{top}}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "index.json"), b, 0o644); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644)
}

// ports are those of the server's defaults; netperf's data go to further ones.
func ports() map[string]struct{} {
	out := map[string]struct{}{}
	for _, p := range []string{"7676/tcp", "7676/udp", "2112/udp", "5201/tcp", "12865/tcp", "7680/tcp", "7680/udp"} {
		out[p] = struct{}{}
	}
	return out
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// layer returns the layer's tar archive.
func (o image) layer() ([]byte, error) {
	program, err := os.ReadFile(o.program)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	ca, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, fmt.Errorf("read the certificates of authorities: %w", err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(name string, mode int64, owner int, b []byte) {
		h := &tar.Header{Name: name, Mode: mode, Uid: owner, Gid: owner, ModTime: o.created, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Size: int64(len(b))}
		if b == nil {
			h.Typeflag = tar.TypeDir
		}
		if err == nil {
			err = w.WriteHeader(h)
		}
		if err == nil {
			_, err = w.Write(b)
		}
	}
	add("etc/", 0o755, 0, nil)
	add("etc/passwd", 0o644, 0, fmt.Appendf(nil, "root:x:0:0:root:/:/\nunbloat:x:%d:%d:unbloat:/var/lib/unbloat:/\n", user, user))
	add("etc/group", 0o644, 0, fmt.Appendf(nil, "root:x:0:\nunbloat:x:%d:\n", user))
	add("etc/ssl/", 0o755, 0, nil)
	add("etc/ssl/certs/", 0o755, 0, nil)
	add("etc/ssl/certs/ca-certificates.crt", 0o644, 0, ca)
	add("tmp/", 0o1777, 0, nil)
	add("unbloat", 0o755, 0, program)
	add("var/", 0o755, 0, nil)
	add("var/lib/", 0o755, 0, nil)
	add("var/lib/unbloat/", 0o700, user, nil)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("pack the layer: %w", err)
	}
	return out.Bytes(), nil
}

func pack(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress the layer: %w", err)
	}
	return out.Bytes(), nil
}
