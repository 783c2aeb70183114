package lab

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// knockTimeout bounds one try to reach a router, and knockPause is the pause
// between two tries.
const (
	knockTimeout = 20 * time.Second
	knockPause   = 500 * time.Millisecond
)

// HostKey waits until a router answers SSH at host:port and returns its host key
// as a line of known_hosts. Whoever asks must be alone with the router on a wire,
// for the key is believed.
func HostKey(ctx context.Context, address string) (string, error) {
	var line string
	err := until(ctx, func(ctx context.Context) error {
		conn, err := dial(ctx, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, _, _, err = ssh.NewClientConn(conn, address, &ssh.ClientConfig{
			User: "root",
			HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
				line = knownhosts.Line([]string{knownhosts.Normalize(address)}, key)
				return nil
			},
		})
		if line != "" {
			return nil // only the host key is wanted; authentication is not tried
		}
		return err
	})
	return line, err
}

// Fingerprint waits until a router answers HTTPS at host:port and returns the
// SHA-256 of its certificate in hexadecimal digits. Whoever asks must be alone
// with the router on a wire, for the certificate is believed.
func Fingerprint(ctx context.Context, address string) (string, error) {
	var sum [sha256.Size]byte
	err := until(ctx, func(ctx context.Context) error {
		conn, err := dial(ctx, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		if err := c.HandshakeContext(ctx); err != nil {
			return err
		}
		sum = sha256.Sum256(c.ConnectionState().PeerCertificates[0].Raw)
		return nil
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(sum[:]), nil
}

// Reached waits until somebody accepts TCP at host:port.
func Reached(ctx context.Context, address string) error {
	return until(ctx, func(ctx context.Context) error {
		conn, err := dial(ctx, address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// dial connects within knockTimeout, which also bounds the exchange that follows.
func dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: knockTimeout}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(knockTimeout))
}

// until tries until it succeeds or ctx ends; then the error says why the last try failed.
func until(ctx context.Context, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for an answer: %w", context.Cause(ctx)), err)
		case <-time.After(knockPause):
		}
	}
}

// Shell says how commands are run on a router by SSH.
type MachineShell struct {
	Address    string // host:port
	User       string
	Identity   string // private key file
	KnownHosts string // file
}

// Say runs lines of the router's shell, each in a session of its own, and returns
// all that they print. A line that fails has said so in what it printed.
func (s MachineShell) Say(ctx context.Context, lines ...string) (string, error) {
	key, err := os.ReadFile(s.Identity)
	if err != nil {
		return "", err
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("read the key %s: %w", s.Identity, err)
	}
	known, err := knownhosts.New(s.KnownHosts)
	if err != nil {
		return "", err
	}
	conn, err := dial(ctx, s.Address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	c, channels, requests, err := ssh.NewClientConn(conn, s.Address, &ssh.ClientConfig{
		User: s.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: known,
	})
	if err != nil {
		return "", err
	}
	client := ssh.NewClient(c, channels, requests)
	defer client.Close()
	var all strings.Builder
	for _, line := range lines {
		session, err := client.NewSession()
		if err != nil {
			return "", err
		}
		out, err := session.CombinedOutput(line)
		session.Close()
		var exit *ssh.ExitError
		if err != nil && !errors.As(err, &exit) {
			return "", fmt.Errorf("run `%s` on the router: %w", line, err)
		}
		fmt.Fprintf(&all, "# %s\n%s", line, out)
	}
	return all.String(), nil
}
