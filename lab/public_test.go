package lab_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/reason"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// Addresses of public servers, on the other side of the lab's line.
const (
	worldFree  = lab.ServerAddr // Cloudflare's and LibreSpeed's servers
	worldLists = "10.3.0.3"     // the locate service and LibreSpeed's list
	worldMLab  = "10.3.0.4"     // M-Lab's server, which requires an access token
	worldToken = "tok.en"       // from the locate service
)

// A world has the public test servers that this program knows: our own servers
// under the real ones' names, with certificates of a test authority.
type world struct {
	dir string

	mu    sync.Mutex
	names map[string]string // host → address
	asked map[string]int    // requests to worldLists, by host
}

// authority makes a test authority and a certificate for names, as PEM files:
// ca.pem, cert.pem and key.pem.
func (w *world) authority(t *testing.T, names ...string) {
	t.Helper()
	now := time.Now()
	make1 := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			parent, signer = template, key
		}
		template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(24*time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key, der
	}
	ca, caKey, caDER := make1(&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	_, key, der := make1(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca, caKey)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{"ca.pem": {Type: "CERTIFICATE", Bytes: caDER}, "cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(w.dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// beyond calls open in the server's namespace, for its sockets.
func beyond(t *testing.T, open func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f, err := os.Open("/run/netns/" + lab.NodeServer)
		if err == nil {
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = open()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// answer answers a DNS query.
func (w *world) answer(q []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(q); err != nil || len(m.Questions) != 1 {
		return nil, fmt.Errorf("not a question: %w", err)
	}
	w.mu.Lock()
	address, known := w.names[strings.TrimSuffix(m.Questions[0].Name.String(), ".")]
	w.mu.Unlock()
	r := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true}, Questions: m.Questions}
	if !known {
		r.RCode = dnsmessage.RCodeNameError
	} else if m.Questions[0].Type == dnsmessage.TypeA {
		r.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: 1},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(address).As4()},
		}}
	}
	return r.Pack()
}

// lists serves the locate service and LibreSpeed's list.
func (w *world) lists(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.asked[r.Host]++
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	switch r.Host + r.URL.Path {
	case "locate.measurementlab.net/v2/nearest/ndt/ndt7":
		at := func(scheme, path string) string {
			return scheme + "://ndt-mlab1-tst01.mlab-oti.measurement-lab.org" + path + "?access_token=" + worldToken
		}
		urls := map[string]string{}
		for _, scheme := range []string{"ws", "wss"} {
			for _, path := range []string{"/ndt/v7/download", "/ndt/v7/upload"} {
				urls[scheme+"://"+path] = at(scheme, path)
			}
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"results": []any{map[string]any{
			"machine": "mlab1-tst01.mlab-oti.measurement-lab.org", "hostname": "ndt-mlab1-tst01.mlab-oti.measurement-lab.org",
			"location": map[string]string{"city": "Testville", "country": "DE"}, "urls": urls,
		}}})
	case "librespeed.org/backend-servers/servers.php":
		entry := func(id int, name, server string) map[string]any {
			return map[string]any{"id": id, "name": name, "server": server, "dlURL": "garbage.php", "ulURL": "empty.php", "pingURL": "empty.php",
				"getIpURL": "getIP.php", "sponsorName": "A Sponsor", "sponsorURL": "https://sponsor.example/"}
		}
		_ = json.NewEncoder(rw).Encode([]any{
			entry(1, "Gone", "//gone.example"),
			entry(2, "No backend", "//librespeed.org/nothing"),
			entry(3, "Lab, Nowhere", "//speed.sponsor.example/backend"),
		})
	default:
		http.NotFound(rw, r)
	}
}

// begin starts the world. It runs until the test ends.
func (w *world) begin(t *testing.T) {
	t.Helper()
	w.names = map[string]string{
		"speed.cloudflare.com": worldFree, "speed.sponsor.example": worldFree, "librespeed.org": worldLists, "locate.measurementlab.net": worldLists,
		"ndt-mlab1-tst01.mlab-oti.measurement-lab.org": worldMLab,
	}
	w.asked = map[string]int{}
	var names []string
	for name := range w.names {
		names = append(names, name)
	}
	slices.Sort(names)
	w.authority(t, names...)
	for _, address := range []string{worldLists, worldMLab} {
		if out, err := labtest.In(t.Context(), lab.NodeServer, "ip", "addr", "add", address+"/24", "dev", "eth0").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.WriteFile("/etc/resolv.conf", []byte("nameserver "+lab.ServerAddr+"\noptions timeout:2 attempts:2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(w.dir, "cert.pem"), filepath.Join(w.dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	beyond(t, func() error {
		dns, err := net.ListenPacket("udp", lab.ServerAddr+":53")
		if err != nil {
			return err
		}
		l, err := tls.Listen("tcp", worldLists+":443", &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}})
		if err != nil {
			return err
		}
		web := &http.Server{Handler: http.HandlerFunc(w.lists), ErrorLog: log.New(io.Discard, "", 0)} // no log: the program measures distances by handshakes, which it breaks off
		t.Cleanup(func() { dns.Close(); web.Close() })
		go func() { _ = web.Serve(l) }() // until the cleanup
		go func() {
			b := make([]byte, 1500)
			for {
				n, from, err := dns.ReadFrom(b)
				if err != nil {
					return
				}
				if a, err := w.answer(b[:n]); err == nil {
					_, _ = dns.WriteTo(a, from)
				}
			}
		}()
		return nil
	})
	for address, key := range map[string]string{worldFree: "", worldMLab: worldToken} {
		cmd := labtest.In(t.Context(), lab.NodeServer, labtest.Unbloat(), "serve", "--listen", address+":7676", "--web", address+":443", "--irtt", "", "--iperf3", "", "--netperf", "",
			"--cert", filepath.Join(w.dir, "cert.pem"), "--cert-key", filepath.Join(w.dir, "key.pem"), "--state-dir", filepath.Join(w.dir, address), "--keep-results", "0", "--key", key)
		if key == "" {
			cmd.Args = cmd.Args[:len(cmd.Args)-2]
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
	}
	time.Sleep(2 * time.Second)
}

// unbloat runs the program, which only trusts the test authority.
func (w *world) unbloat(t *testing.T, args ...string) (out, said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), labtest.Unbloat(), args...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+filepath.Join(w.dir, "ca.pem"), "SSL_CERT_DIR="+w.dir+"/none")
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// forget removes names from the DNS.
func (w *world) forget(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		delete(w.names, name)
	}
}

// A user without a server: Cloudflare's, LibreSpeed's and M-Lab's servers are
// found by name, trusted by the system's authorities, and used for a
// measurement. auto uses the next one if one cannot be reached, and M-Lab only
// if the user agrees.
func TestPublicServers(t *testing.T) {
	t.Parallel()
	if !labtest.Inside(t, labtest.Options{Node: lab.Host(1), Scenario: labtest.HomeAt(4*unit.MbitPerSecond, unit.MbitPerSecond)}) {
		return
	}
	w := &world{dir: t.TempDir()}
	w.begin(t)
	measured := func(server, operator, url string) {
		t.Helper()
		args := []string{"test", "--json", "--seconds", "4", "--idle", "2", "--flows", "2", "--store", filepath.Join(w.dir, "results.db")}
		if server != "" {
			args = append(args, "--server", server)
		}
		out, said, code := w.unbloat(t, args...)
		var r verdict.Test
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
			t.Fatalf("--server %q: exit %d, %v: %s%s", server, code, err, said, out)
		}
		t.Logf("--server %q: %s: grade %s, %.2f/%.2f Mbit/s, idle %.1f ms; notes %q", server, r.Server, r.Grade, r.Download.GoodputDownBps/1e6, r.Upload.GoodputUpBps/1e6, r.Idle.Latency.RTTMs.P50, r.Notes)
		if r.Server != url || !strings.Contains(said, "measuring against "+operator+", 2") || strings.Contains(out+said, worldToken) {
			t.Errorf("--server %q: measured against %s, said %s", server, r.Server, said)
		}
		i := slices.IndexFunc(r.Remarks, func(x reason.Reason) bool { return x.Code == reason.PublicServer })
		if i < 0 || !strings.Contains(r.Notes[i], operator) || !strings.Contains(r.Notes[i], "https://") {
			t.Errorf("--server %q: notes %q", server, r.Notes)
		}
		if idle := r.Idle.Latency.RTTMs.P50; idle < 19.5 || idle > 22 {
			t.Errorf("--server %q: idle round trip %.1f ms, the line has 20", server, idle)
		}
		if r.Download.GoodputDownBps < 3.4e6 || r.Download.GoodputDownBps > 4e6 || r.Grade == "A+" {
			t.Errorf("--server %q: %.1f Mbit/s down, grade %s", server, r.Download.GoodputDownBps/1e6, r.Grade)
		}
	}
	const cloudflare, sponsored, mlab = "cloudflare+https://speed.cloudflare.com", "librespeed+https://speed.sponsor.example/backend", "ndt7+wss://ndt-mlab1-tst01.mlab-oti.measurement-lab.org"
	measured("", "Cloudflare", cloudflare)
	measured("librespeed", "A Sponsor (Lab, Nowhere)", sponsored)
	measured("mlab", "Measurement Lab (Testville, DE)", mlab)
	w.forget("speed.cloudflare.com")
	measured("auto", "A Sponsor (Lab, Nowhere)", sponsored)

	// Standard input is no terminal, so nobody can agree that M-Lab publishes
	// the result: it is not used.
	w.forget("librespeed.org")
	before := w.asked["locate.measurementlab.net"]
	if _, said, code := w.unbloat(t, "test"); code != 5 || !strings.Contains(said, "--server mlab agrees to that") || w.asked["locate.measurementlab.net"] != before {
		t.Errorf("M-Lab unasked: exit %d: %s", code, said)
	}
	// M-Lab is not used for commands with many tests, and a certificate of
	// another authority is refused.
	if _, said, code := w.unbloat(t, "path", lab.ServerAddr, "--load", "mlab"); code != 5 || !strings.Contains(said, "for single tests") {
		t.Errorf("path against M-Lab: exit %d: %s", code, said)
	}
	w.dir = t.TempDir()
	if _, said, code := w.unbloat(t, "test", "--server", "mlab"); code != 5 || !strings.Contains(said, "certificate") {
		t.Errorf("another authority: exit %d: %s", code, said)
	}
}
