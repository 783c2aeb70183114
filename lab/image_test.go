package lab

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// A file that is not a bootable image is refused, with what to do.
func TestInspect(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, head string
		want       Format
		says       string
	}{
		{"raw", "\xeb\x58\x90", Raw, ""},
		{"qcow2", "QFI\xfb\x00\x00\x00\x03", QCOW2, ""},
		{"vmdk", "KDMV\x01", VMDK, ""},
		{"openwrt.img.gz", "\x1f\x8b\x08", "", "gunzip -k "},
		{"OPNsense.img.bz2", "BZh9", "", "bunzip2 -k "},
		{"freebsd.qcow2.xz", "\xfd7zXZ\x00", "", "unxz -k "},
		{"image.zst", "\x28\xb5\x2f\xfd", "", "unzstd "},
	} {
		file := filepath.Join(dir, c.name)
		if err := os.WriteFile(file, append([]byte(c.head), make([]byte, 512)...), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Inspect(file)
		var refused *FileError
		switch {
		case c.says == "" && (err != nil || got != c.want):
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		case c.says != "" && (!errors.As(err, &refused) || !strings.HasPrefix(refused.Remedy, "unpack it first: "+c.says)):
			t.Errorf("%s: %v; want a refusal that says %q", c.name, err, c.says)
		}
	}
	small := filepath.Join(dir, "small")
	if err := os.WriteFile(small, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{small, dir, filepath.Join(dir, "missing")} {
		var refused *FileError
		if _, err := Inspect(file); !errors.As(err, &refused) {
			t.Errorf("%s: %v; want a *FileError", file, err)
		}
	}
}

// The LAN is the first card, a comma in a file name does not start an option of
// QEMU, and nothing is written to the image.
func TestArguments(t *testing.T) {
	args, err := arguments(MachineOptions{File: "/a,b.img", MAC: [cards]string{"02:00:00:00:03:01", "02:00:00:00:00:01"}}, QCOW2, "tcg")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"-drive", "file=/a,,b.img,format=qcow2,if=virtio,snapshot=on",
		"-netdev", "tap,id=card0,fd=3", "-device", "virtio-net-pci,netdev=card0,mac=02:00:00:00:03:01",
		"-netdev", "tap,id=card1,fd=4", "-device", "virtio-net-pci,netdev=card1,mac=02:00:00:00:00:01"}
	if tail := args[len(args)-len(want):]; !slices.Equal(tail, want) {
		t.Errorf("arguments end with %q, want %q", tail, want)
	}
}

// A kernel may have /dev/kvm although the processor has no virtualization.
func TestHypervisor(t *testing.T) {
	for text, want := range map[string]bool{
		"processor\t: 0\nflags\t\t: fpu vmx sse\n": true,
		"flags\t\t: fpu svm\n":                     true,
		"flags\t\t: fpu sse\nvmx flags\t: ept\n":   false,
		"":                                         false,
	} {
		if got := hypervisor(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// The last lines of a console are kept, without control characters.
func TestTail(t *testing.T) {
	var c tail
	for range 5000 {
		c.Write([]byte("\x1b[1mbooting\r\n"))
	}
	c.Write([]byte("login: "))
	if got := c.lines(2); got != "[1mbooting\nlogin:" {
		t.Errorf("the last lines are %q", got)
	}
	if len(c.text) > mostTail {
		t.Errorf("%d bytes are kept", len(c.text))
	}
}

// A router that does not answer yet is tried again, and its key is stored where
// a client looks for it in known_hosts.
func TestHostKey(t *testing.T) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for first := true; ; first = false {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if !first { // the first attempt comes before the server is up
				c := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, errors.New("no") }}
				c.AddHostKey(signer)
				_, _, _, _ = ssh.NewServerConn(conn, c)
			}
			conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, err := HostKey(ctx, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if want := knownhosts.Line([]string{knownhosts.Normalize(l.Addr().String())}, signer.PublicKey()); got != want {
		t.Errorf("known_hosts gets %q, want %q", got, want)
	}
}

// The fingerprint is that of the certificate that the router presents.
func TestFingerprint(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	got, err := Fingerprint(t.Context(), s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(s.Certificate().Raw)
	if want := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("fingerprint %s, want %s", got, want)
	}
}

// If the wait is in vain the error is that of the last attempt.
func TestReachedNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = Reached(ctx, l.Addr().String())
	var refused *net.OpError
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &refused) {
		t.Errorf("%v: want the end of the time and the last refusal", err)
	}
}
