package protocol_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"unbloat/guard"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/protocol/all"
	"unbloat/internal/serve"
	"unbloat/testkit/await"
)

// secure runs our servers with a new certificate.
func secure(t *testing.T, o serve.Options) (*serve.Server, *tls.Certificate) {
	t.Helper()
	cert, err := serve.OwnCertificate(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o.Web, o.Cert = "127.0.0.1:0", cert
	return serving(t, o), cert
}

// Our clients with our servers: each HTTP protocol, with a pinned TLS
// certificate and without TLS, with latency on separate and on the loaded
// connections.
func TestWebOurs(t *testing.T) {
	await.NotShort(t)
	s, cert := secure(t, serve.Options{Key: "k"})
	for _, scheme := range []string{"librespeed+https", "cloudflare+https", "rpm+https", "ndt7+wss", "rpm+http", "ndt7+ws"} {
		t.Run(scheme, func(t *testing.T) {
			c := dialed(t, scheme+"://"+narrow(t, s.Web().String()), protocol.Options{Pin: guard.Fingerprint(cert), Key: "k"})
			got := loaded(t, c)
			if got.Both.OnLoad == nil && scheme != "rpm+http" {
				t.Error("no latency on the loaded connections")
			}
		})
	}
}

// A wrong certificate, a missing key and another kind of server have different
// errors.
func TestWebErrors(t *testing.T) {
	s, cert := secure(t, serve.Options{Key: "k"})
	for name, c := range map[string]struct {
		server string
		o      protocol.Options
		says   string
	}{
		"own certificate": {"rpm+https://" + s.Web().String(), protocol.Options{Key: "k"}, "certificate"},
		"another pin":     {"rpm+https://" + s.Web().String(), protocol.Options{Key: "k", Pin: strings.Repeat("0", 64)}, "pinned"},
		"no key":          {"rpm+https://" + s.Web().String(), protocol.Options{Pin: guard.Fingerprint(cert)}, "401"},
		"nobody":          {"cloudflare+http://127.0.0.1:1", protocol.Options{}, "refused"},
		"a scheme":        {"gopher://h", protocol.Options{}, "gopher"},
		"a path":          {"irtt://h/x", protocol.Options{}, "more than"},
		"ping":            {"librespeed+http://h", protocol.Options{Ping: "x:y:"}, ""},
	} {
		if _, err := all.Protocols().Dial(t.Context(), c.server, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	for _, o := range []protocol.Options{{Key: "k"}, {Key: "k", Pin: strings.Repeat("0", 64)}} { // it is there, and not trusted
		if _, err := all.Protocols().Dial(t.Context(), "cloudflare+https://"+s.Web().String(), o); !errors.Is(err, protocol.ErrCertificate) || errors.Is(err, phases.ErrUnreachable) {
			t.Errorf("pin %q: %v", o.Pin, err)
		}
		c := dialed(t, "ndt7+wss://"+s.Web().String(), o) // which has nothing to ask before the load
		if _, err := phases.Run(t.Context(), c, phases.Config{Idle: time.Second, Load: time.Second}); !errors.Is(err, protocol.ErrCertificate) || errors.Is(err, phases.ErrUnreachable) {
			t.Errorf("ndt7, pin %q: %v", o.Pin, err)
		}
	}
	colons := strings.ToUpper(strings.Join(regexp.MustCompile("..").FindAllString(guard.Fingerprint(cert), -1), ":"))
	for pin, good := range map[string]bool{colons: true, "55fc": false, strings.Repeat("x", 64): false, guard.Fingerprint(cert) + "00": false} {
		if _, err := protocol.ParsePin(pin); (err == nil) != good {
			t.Errorf("pin %q: %v", pin, err)
		}
	}
}

// M-Lab's ndt7 client with our server. It prints a summary of four lines.
func TestNDT7ClientOfMLab(t *testing.T) {
	client := mlab(t, "github.com/m-lab/ndt7-client-go/cmd/ndt7-client")
	s, _ := secure(t, serve.Options{})
	cmd := exec.CommandContext(t.Context(), client, "-server", narrow(t, s.Web().String()), "-no-verify", "-format", "json", "-scheme", "wss")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	var r struct {
		Download, Upload struct{ Throughput struct{ Value float64 } }
	}
	if err := json.Unmarshal(lines[len(lines)-1], &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if r.Download.Throughput.Value <= 0 || r.Upload.Throughput.Value <= 0 {
		t.Errorf("%s", lines[len(lines)-1])
	}
}

// Our client with M-Lab's ndt-server.
func TestNDT7ServerOfMLab(t *testing.T) {
	server := mlab(t, "github.com/m-lab/ndt-server")
	dir, address := t.TempDir(), freePort(t, "tcp")
	argv := []string{"-ndt7_addr_cleartext", address, "-ndt7_addr", freePort(t, "tcp"), "-ndt5_addr", freePort(t, "tcp"),
		"-ndt5_ws_addr", freePort(t, "tcp"), "-prometheusx.listen-address", freePort(t, "tcp"),
		"-htmldir", dir, "-datadir", dir, "-ndt7.token.required=false"}
	cmd := exec.Command(server, argv...)
	cmd.Dir = dir
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("%.2000s", log.String())
		}
	})
	loaded(t, dialed(t, "ndt7+ws://"+narrow(t, address), protocol.Options{}))
}

// mlab builds one of M-Lab's programs in the version of testdata/mlab/go.mod, or
// skips the test with the reason. Go's cache makes a second build fast.
func mlab(t testing.TB, pkg string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: a test of ndt7 takes 20 s")
	}
	out := filepath.Join(t.TempDir(), "peer")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "netgo,osusergo", "-o", out, pkg)
	cmd.Dir = filepath.Join("testdata", "mlab")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // it reads TCP_INFO in C; the tags leave Go's own packages as they are compiled
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: %s cannot be built here: %v: %.300s", pkg, err, text)
	}
	return out
}

// curl gets the same answers from our endpoints as browsers' clients.
func TestCurl(t *testing.T) {
	curl := program(t, "curl")
	s, _ := secure(t, serve.Options{})
	base := "https://" + s.Web().String()
	for _, c := range []struct {
		path string
		args []string
		want string // written by -w
	}{
		{"/garbage.php?ckSize=2", nil, "200 2097152"},
		{"/backend/garbage?ckSize=1", nil, "200 1048576"},
		{"/empty.php", nil, "200 0"},
		{"/empty", []string{"-X", "POST", "-H", "Transfer-Encoding: chunked", "-d", "xyz"}, "200 0"},
		{"/__down?bytes=12345", nil, "200 12345"},
		{"/__down?bytes=-1", nil, "400"},
		{"/__up", []string{"-d", "xyz"}, "200 0"},
		{"/nq/small", nil, "200 1"},
		{"/nothing", nil, "404"},
	} {
		argv := append([]string{"-sk", "-o", "/dev/null", "-w", "%{http_code} %{size_download}"}, c.args...)
		out, err := exec.CommandContext(t.Context(), curl, append(argv, base+c.path)...).Output()
		if err != nil || !strings.HasPrefix(string(out), c.want) {
			t.Errorf("%s: %q, %v, want %q", c.path, out, err, c.want)
		}
	}
	out, err := exec.CommandContext(t.Context(), curl, "-sk", base+"/.well-known/nq").Output()
	if err != nil || !bytes.Contains(out, []byte("small_https_download_url")) || !bytes.Contains(out, []byte(`"upload_url"`)) {
		t.Errorf("%s, %v", out, err)
	}
}
