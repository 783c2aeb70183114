package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"unbloat/guard"
	"unbloat/internal/cure/platform"
	"unbloat/internal/measure/netio"
)

// A Target is the SSH address of a router: ssh://user@host[:port].
type Target struct {
	User string
	Host string
	Port int
}

// ParseTarget reads ssh://[user@]host[:port]; the default user is root. It refuses a
// password, which would end up in shell histories and logs.
func ParseTarget(s string) (Target, error) {
	u, err := netio.ParseURL(s)
	if plainHost().MatchString(s) {
		at := s
		if !strings.Contains(s, "@") {
			at = "root@" + s
		}
		return Target{}, &AddressError{Why: "that is not an address of a router; do you mean ssh://" + at + "?"}
	}
	bad := func(why string) (Target, error) {
		return Target{}, &AddressError{Why: why + "; write ssh://user@host[:port] or opnsense+https://host"}
	}
	switch {
	case err != nil:
		return bad("that is not an address") // err would quote it, and with it a password
	case u.Scheme != "ssh" || u.Hostname() == "":
		return bad("that is not an address of a router")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "":
		return bad("an address has nothing after the host and port")
	}
	t := Target{User: "root", Host: u.Hostname(), Port: 22}
	if u.User != nil {
		if _, has := u.User.Password(); has {
			return bad("it must not contain a password; use a key, or ssh-agent")
		}
		if name := u.User.Username(); name != "" {
			t.User = name
		}
	}
	if p := u.Port(); p != "" {
		if t.Port, err = strconv.Atoi(p); err != nil || t.Port < 1 || t.Port > 65535 {
			return bad("the port must be a number from 1 to 65535")
		}
	}
	return t, nil
}

// plainHost matches what people write for ssh(1): a host, with a user or a port. It has no
// place for a password.
func plainHost() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?$`)
}

// An AddressError says that the address given for a router is invalid.
type AddressError struct{ Why string }

func (e *AddressError) Error() string { return "reach the router: " + e.Why }

// String prints the target as ParseTarget reads it.
func (t Target) String() string {
	return "ssh://" + t.User + "@" + strings.Replace(t.address(), "%", "%25", 1)
}

func (t Target) address() string { return net.JoinHostPort(t.Host, strconv.Itoa(t.Port)) }

// SSHOptions are the options of a connection. The zero value does as ssh(1): the
// known_hosts of the user and the system, the agent, and the usual key files.
type SSHOptions struct {
	KnownHosts []string
	Identities []string    // private key files
	Agent      string      // socket of ssh-agent; "-": none
	Path       string      // PATH on the router; "": the usual directories
	Limit      guard.Limit // of each command; zero: platform.CommandLimit
}

// usualPath has the directories of every platform's tools. No login shell sets PATH
// for our commands.
const usualPath = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin"

// Times of a connection.
const (
	dialTimeout  = 30 * time.Second
	keepalive    = 5 * time.Second
	aliveTimeout = 15 * time.Second
)

// SSH runs commands on a router, each in a session of its own. If the connection is
// lost, the next command connects again. It implements platform.Runner.
type SSH struct {
	target  Target
	options SSHOptions

	mu     sync.Mutex
	client *ssh.Client
	conn   net.Conn      // what client uses
	done   chan struct{} // closed when client's watcher has ended
	under  int           // commands whose end is not known
	become []string      // prefix of every command, such as sudo -n
}

// nowhere is the home of who has none: a path from the working directory would be chosen
// by whoever made that.
const nowhere = "/nonexistent"

// DialSSH connects. Errors are *platform.PreconditionError and say what to do.
func DialSSH(ctx context.Context, t Target, o SSHOptions) (*SSH, error) {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		home = nowhere
	}
	if o.KnownHosts == nil {
		o.KnownHosts = []string{filepath.Join(home, ".ssh", "known_hosts"), "/etc/ssh/ssh_known_hosts"}
	}
	if o.Identities == nil {
		for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
			o.Identities = append(o.Identities, filepath.Join(home, ".ssh", name))
		}
	}
	if o.Agent == "" {
		o.Agent = os.Getenv("SSH_AUTH_SOCK")
	}
	if o.Path == "" {
		o.Path = usualPath
	}
	o.Limit = cmp.Or(o.Limit, platform.CommandLimit())
	s := &SSH{target: t, options: o}
	if _, err := s.connected(ctx); err != nil {
		return nil, err
	}
	if err := s.findRoot(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// String prints the target.
func (s *SSH) String() string { return s.target.String() }

// findRoot looks for a way to become root, if the user is not root.
func (s *SSH) findRoot(ctx context.Context) error {
	id, err := platform.Output(ctx, s, "id", "-u")
	if err != nil {
		return fmt.Errorf("ask %s who we are: %w", s.target, err)
	}
	if strings.TrimSpace(string(id)) == "0" {
		return nil
	}
	for _, become := range [][]string{{"sudo", "-n"}, {"doas", "-n"}} {
		if _, err := platform.Output(ctx, s, append(become, "true")...); err == nil {
			s.become = become
			return nil
		}
	}
	return nil // reading may be enough; a change that needs root fails and says so
}

func (s *SSH) fail(what, remedy string, err error) error {
	return &platform.PreconditionError{Doing: "reach " + s.target.String(), What: what, Remedy: remedy, Err: errors.Join(platform.ErrUnreachable, err)}
}

// connected returns the connection, and connects if there is none.
func (s *SSH) connected(ctx context.Context) (*ssh.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	known, err := s.knownHosts()
	if err != nil {
		return nil, err
	}
	methods, closeAgent, err := s.methods()
	if err != nil {
		return nil, err
	}
	defer closeAgent()
	conn, err := dial(ctx, s.target.address())
	if err != nil {
		return nil, s.fail(err.Error(), "check its address and port, and that its SSH server runs", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(dialTimeout))
	c, chans, reqs, err := ssh.NewClientConn(conn, s.target.address(), &ssh.ClientConfig{
		User: s.target.User, Auth: methods, HostKeyCallback: known, HostKeyAlgorithms: s.algorithms(known), Timeout: dialTimeout,
	})
	if err != nil {
		conn.Close()
		return nil, s.explain(err)
	}
	_ = conn.SetDeadline(time.Time{})
	s.client, s.conn, s.done = ssh.NewClient(c, chans, reqs), conn, make(chan struct{})
	go s.watch(s.client, s.done)
	return s.client, nil
}

// watch closes a connection that no longer answers; it ends with the connection.
func (s *SSH) watch(c *ssh.Client, done chan struct{}) {
	defer close(done)
	gone := make(chan struct{})
	go func() { _ = c.Wait(); close(gone) }() // ends when c is closed
	for {
		select {
		case <-gone:
			return
		case <-time.After(keepalive):
		}
		answered := make(chan error, 1)
		go func() { _, _, err := c.SendRequest("keepalive@openssh.com", true, nil); answered <- err }()
		select {
		case err := <-answered:
			if err == nil {
				continue
			}
		case <-time.After(aliveTimeout):
		}
		c.Close()
		<-gone
		return
	}
}

// Close ends the connection.
func (s *SSH) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil
	}
	if s.under == 0 { // nothing is on its way: the router may see an orderly end
		linger(s.conn, -1)
	}
	err := s.client.Close()
	<-s.done
	s.client, s.conn = nil, nil
	return err
}

// drop forgets a connection that failed.
func (s *SSH) drop(c *ssh.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == c {
		c.Close()
		<-s.done
		s.client, s.conn = nil, nil
	}
}

// count adds n to the commands whose end is not known.
func (s *SSH) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under += n
}

// Run implements platform.Runner. A command that says too much, or takes too long, is
// given up with its connection: only that surely ends what the router still sends.
func (s *SSH) Run(ctx context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	if len(argv) == 0 {
		return nil, nil, errors.New("run: no command")
	}
	client, err := s.connected(ctx)
	if err != nil {
		return nil, nil, err
	}
	stdout, stderr, err = s.options.Limit.Take(ctx, func(ctx context.Context, out, errOut io.Writer) error {
		ended := make(chan error, 1)
		s.count(1)
		go func() { // ends with the command, or with the connection
			err := s.command(ctx, client, argv, stdin, out, errOut)
			s.count(-1)
			ended <- err
		}()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done(): // the command is asked to end, and not waited for
			return ctx.Err()
		}
	})
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return stdout, stderr, nil
	case errors.Is(err, guard.ErrLong), errors.Is(err, guard.ErrLate):
		s.drop(client)
		return nil, nil, s.fail(fmt.Sprintf("`%s` was given up: %v", strings.Join(argv, " "), err),
			"see what it does there; if something was being changed, the watchdog on the router undoes it", err)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil, nil, err
	case errors.As(err, &exit) && exit.ExitStatus() == exitNotFound && strings.HasSuffix(string(stderr), notFound):
		return nil, nil, &platform.MissingToolError{Tool: argv[0]}
	case errors.As(err, &exit):
		return stdout, stderr, err
	}
	s.drop(client)
	return nil, nil, s.lost(argv, err)
}

// command runs a command in a session of its own, and asks it to end when ctx does.
// SSH always uses the user's login shell, so every word is quoted for it. One that
// nobody waits for any more, and that does not end, takes the connection with it.
func (s *SSH) command(ctx context.Context, client *ssh.Client, argv []string, stdin []byte, out, errOut io.Writer) error {
	defer time.AfterFunc(2*s.options.Limit.Time, func() { s.drop(client) }).Stop()
	session, err := client.NewSession()
	if err != nil {
		return err
	}
	defer session.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = session.Signal(ssh.SIGTERM)
		_ = session.Close()
	})
	defer stop()
	session.Stdout, session.Stderr = out, errOut
	if stdin != nil {
		session.Stdin = bytes.NewReader(stdin)
	}
	words := slices.Concat(s.become, []string{"sh", "-c", runIn, "sh", s.options.Path}, argv)
	return session.Run(forLogin(words))
}

// runIn runs a command with the PATH $1. A shell does that, not env(1): OpenWrt's busybox runs
// its own applet of a program's name from env, nice, timeout or xargs, whatever is in PATH, and
// its ip(8) knows no -j.
const runIn = `PATH=$1 LC_ALL=C; export PATH LC_ALL; shift; command -v "$1" >/dev/null || { echo unbloat-127 >&2; exit 127; }; exec "$@"`

// What runIn ends with if there is no such program. A program may have its own reason to end
// with that code.
const (
	exitNotFound = 127
	notFound     = "unbloat-127\n"
)

func (s *SSH) lost(argv []string, err error) error {
	return s.fail(fmt.Sprintf("the connection was lost at `%s`: %v", strings.Join(argv, " "), err),
		"if something was being changed, the watchdog on the router undoes it; try again when the router can be reached", err)
}

// Quote writes words so that a POSIX shell reads the same words.
func Quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// forLogin writes words so that any login shell runs them. csh, root's shell on
// pfSense and on older FreeBSD, interprets ! and line ends even within quotes.
// Words with these go to a POSIX shell, written in octal.
func forLogin(words []string) string {
	line := Quote(words)
	if !strings.ContainsAny(line, "!\n\r") {
		return line
	}
	var octal strings.Builder
	for _, c := range []byte(line) {
		fmt.Fprintf(&octal, `\%03o`, c)
	}
	return `/bin/sh -c 'eval "$(printf "` + octal.String() + `")"'`
}

// knownHosts checks the router's key against the known_hosts files that exist.
func (s *SSH) knownHosts() (ssh.HostKeyCallback, error) {
	var files []string
	for _, f := range s.options.KnownHosts {
		if _, err := os.Stat(f); err == nil {
			files = append(files, f)
		}
	}
	check, err := knownhosts.New(files...)
	if err != nil {
		return nil, s.fail("known_hosts can't be read: "+err.Error(), "correct that line", err)
	}
	return check, nil
}

// algorithms returns the algorithms of the router's known host keys: a server has
// several keys, and must present one that is known.
func (s *SSH) algorithms(known ssh.HostKeyCallback) []string {
	var e *knownhosts.KeyError
	if !errors.As(known(s.target.address(), &net.TCPAddr{}, noKey{}), &e) {
		return nil
	}
	var out []string
	for _, k := range e.Want {
		if t := k.Key.Type(); t == ssh.KeyAlgoRSA {
			out = append(out, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			out = append(out, t)
		}
	}
	return out
}

// noKey is a key that no router has.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return nil }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }

// methods returns the agent's keys and then those in files.
func (s *SSH) methods() (out []ssh.AuthMethod, done func(), err error) {
	done = func() {}
	if s.options.Agent != "" && s.options.Agent != "-" {
		if conn, err := net.Dial("unix", s.options.Agent); err == nil {
			_ = conn.SetDeadline(time.Now().Add(dialTimeout)) // an agent that hangs must not hold up everything
			out = append(out, ssh.PublicKeysCallback(agent.NewClient(conn).Signers))
			done = func() { conn.Close() }
		}
	}
	var signers []ssh.Signer
	locked := ""
	for _, f := range s.options.Identities {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		signer, err := ssh.ParsePrivateKey(b)
		var protected *ssh.PassphraseMissingError
		switch {
		case errors.As(err, &protected):
			locked = f
		case err == nil:
			signers = append(signers, signer)
		}
	}
	if len(signers) > 0 {
		out = append(out, ssh.PublicKeys(signers...))
	}
	if len(out) == 0 {
		done()
		if locked != "" {
			return nil, nil, s.fail(locked+" has a passphrase", "add it to the agent first: ssh-add "+locked, nil)
		}
		return nil, nil, s.fail("there is no key: neither an agent nor one of "+strings.Join(s.options.Identities, ", "), "make one (ssh-keygen) and put it on the router (ssh-copy-id), or name one with --identity", nil)
	}
	return out, done, nil
}

// letIn are the commands after which the router lets us in.
func (s *SSH) letIn() string {
	return fmt.Sprintf("ssh-keygen -t ed25519 (unless you have a key), then ssh-copy-id -p %d %s@%s", s.target.Port, s.target.User, s.target.Host)
}

// explain says what to do about a connection that failed.
func (s *SSH) explain(err error) error {
	var key *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	switch {
	case errors.As(err, &revoked):
		return s.fail("its host key is revoked", "do not connect", err)
	case errors.As(err, &key) && len(key.Want) == 0:
		return s.fail("its host key is not known", "compare the key that ssh shows with the router's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub there), and let it know yours: "+s.letIn(), err)
	case errors.As(err, &key):
		return s.fail("its host key is NOT the one that is known ("+key.Want[0].String()+"): the router was reinstalled, or somebody intercepts the connection",
			"find out which; if the router was reinstalled: ssh-keygen -R "+knownhosts.Normalize(s.target.address()), err)
	case strings.Contains(err.Error(), "unable to authenticate"):
		return s.fail("it accepts none of our keys for "+s.target.User, "let it know yours: "+s.letIn()+"; or name another key with --identity", err)
	}
	return s.fail(err.Error(), "check that its SSH server runs at this port", err)
}
