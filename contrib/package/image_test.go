//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// smallProgram builds a small static program instead of the server.
func smallProgram(t *testing.T) string {
	t.Helper()
	return programOf(t, "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() {\n\tca, err := os.ReadFile(\"/etc/ssl/certs/ca-certificates.crt\")\n\tfmt.Println(\"runs as\", os.Getuid(), os.Args[1:], string(ca), err)\n}\n")
}

// programOf builds a program of one file.
func programOf(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", out, filepath.Join(dir, "main.go"))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

func madeImage(t *testing.T, program string) string {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte("authorities"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "image")
	if err := (image{program: program, ca: ca, on: target{"linux", "amd64"}, version: "1.2.3", created: time.Unix(1e9, 0).UTC()}).write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// blob reads the file of a descriptor, and checks its length and digest.
func blob(t *testing.T, dir string, d descriptor) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(d.Digest, "sha256:")))
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(b)) != d.Size || digest(b) != d.Digest {
		t.Fatalf("%s: %d bytes of %s, not %d", d.Digest, len(b), digest(b), d.Size)
	}
	return b
}

func decode(t *testing.T, b []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
}

// The layout follows the image specification, every digest and size is right,
// and the program runs as an unprivileged user.
func TestImage(t *testing.T) {
	p := smallProgram(t)
	dir := madeImage(t, p)
	b, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var i index
	decode(t, b, &i)
	if i.SchemaVersion != 2 || len(i.Manifests) != 1 || i.Manifests[0].MediaType != typeManifest {
		t.Fatalf("%+v", i)
	}
	var m manifest
	decode(t, blob(t, dir, i.Manifests[0]), &m)
	if len(m.Layers) != 1 || m.Config.MediaType != typeConfig || m.Layers[0].MediaType != typeLayer {
		t.Fatalf("%+v", m)
	}
	var c configuration
	decode(t, blob(t, dir, m.Config), &c)
	if c.Config.User != "65532:65532" || c.OS != "linux" || c.Architecture != "amd64" || len(c.Config.ExposedPorts) != 7 {
		t.Errorf("%+v", c)
	}
	z, err := gzip.NewReader(bytes.NewReader(blob(t, dir, m.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.RootFS.DiffIDs) != 1 || c.RootFS.DiffIDs[0] != digest(layer) {
		t.Errorf("the layer is %s, not %v", digest(layer), c.RootFS.DiffIDs)
	}
	seen := map[string]*tar.Header{}
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen[h.Name] = h
	}
	if h := seen["unbloat"]; h == nil || h.Mode != 0o755 || h.Uid != 0 || h.ModTime.Unix() != 1e9 {
		t.Errorf("the program: %+v", h)
	}
	if h := seen["var/lib/unbloat/"]; h == nil || h.Uid != user || h.Mode != 0o700 {
		t.Errorf("the state: %+v", h)
	}
	if seen["etc/ssl/certs/ca-certificates.crt"] == nil || len(seen) != 11 {
		t.Errorf("%d files", len(seen))
	}
	again := madeImage(t, p)
	other, err := os.ReadFile(filepath.Join(again, "index.json")) // the index has the digests of all files
	if err != nil || !bytes.Equal(b, other) {
		t.Errorf("made again it is another image: %v", err)
	}
}

// Debian's skopeo reads the image, umoci unpacks it, and runc runs it, if they
// are installed.
func TestImageOnly(t *testing.T) {
	dir := madeImage(t, smallProgram(t))
	run := func(name string, args ...string) (string, bool) {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Logf("SKIPPED: %v", err)
			return "", false
		}
		out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
		if err != nil {
			t.Errorf("%s %v: %v: %s", name, args, err, out)
		}
		return string(out), err == nil
	}
	if out, ok := run("skopeo", "inspect", "--config", "oci:"+dir+":latest"); ok && !strings.Contains(out, `"65532:65532"`) {
		t.Errorf("skopeo: %s", out)
	}
	if _, ok := run("skopeo", "copy", "--insecure-policy", "oci:"+dir+":latest", "docker-archive:"+filepath.Join(t.TempDir(), "image.tar")); !ok {
		t.Log("skopeo did not copy it")
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	unpack := []string{"unpack", "--image", dir + ":latest", bundle}
	if os.Getuid() != 0 {
		unpack = append([]string{"unpack", "--rootless"}, unpack[1:]...)
	}
	if _, ok := run("umoci", unpack...); !ok {
		t.Skip("SKIPPED: umoci did not unpack it, so it is not run")
	}
	crun, err := exec.LookPath("crun")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	// umoci's bundle asks for a terminal and for network namespaces.
	config := filepath.Join(bundle, "config.json")
	b, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte(`"terminal": true`), []byte(`"terminal": false`), 1)
	if err := os.WriteFile(config, b, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), crun, "--cgroup-manager=disabled", "--root", t.TempDir(), "run", "--bundle", bundle, "unbloat-image-test").CombinedOutput()
	if err != nil {
		t.Logf("crun: SKIPPED: it cannot run containers here: %v: %s", err, out)
		if out, err = confined(t, filepath.Join(bundle, "rootfs")); err != nil {
			t.Skipf("SKIPPED: nor can it be run in its own root: %v: %s", err, out)
		}
	}
	if !strings.Contains(string(out), "runs as 65532 [serve --state-dir /var/lib/unbloat] authorities <nil>") {
		t.Errorf("it says %s", out)
	}
}

// confined runs the image's program as a container would, but without
// namespaces: with its own root directory, as its own user.
func confined(t *testing.T, root string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/unbloat", "serve", "--state-dir", "/var/lib/unbloat")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd.CombinedOutput()
}
