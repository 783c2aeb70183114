package household

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
)

// shell is a user who types: OpenSSH's client to OpenSSH's server, whose
// terminal a program answers each key on.
type shell struct {
	task         Task
	dir          string
	sshd, client *program
}

// echoGrace is how long after the last key an echo may still come.
const echoGrace = 5 * time.Second

func (s *shell) prepare(ctx context.Context) (err error) {
	sshd, err := need("sshd", "openssh-server")
	if err != nil {
		return err
	}
	if _, err := need("ssh", "openssh-client"); err != nil {
		return err
	}
	if err := s.task.giveAddresses(ctx, 1); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("/dev/shm", "ssh-"); err != nil {
		return err
	}
	if err := s.files(ctx); err != nil {
		return err
	}
	// A namespace's own mounts: an account that the machine locks is open here alone.
	script := fmt.Sprintf("mkdir -p /run/sshd && mount --bind %s/shadow /etc/shadow && exec %s -D -e -f %s/sshd_config", s.dir, sshd, s.dir)
	if s.sshd, err = start(ctx, s.task.Home.ServerNode, "sh", "-c", script); err != nil {
		return err
	}
	if err := answers(ctx, s.task.address(1)+":22"); err != nil {
		return s.sshd.failed(err)
	}
	// Without an echo of its own the terminal leaves it to the program, as editors do.
	s.client, err = start(ctx, s.task.Home.Node, "ssh", "-tt", "-F", "/dev/null", "-i", s.dir+"/user", "-o", "LogLevel=ERROR",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "root@"+s.task.address(1),
		"stty raw -echo; echo "+Ready+"; exec cat")
	if err != nil {
		return err
	}
	for {
		text, err := s.client.line()
		if err != nil {
			return err
		}
		if strings.TrimSpace(text) == Ready {
			return nil
		}
	}
}

// files makes the keys and the server's configuration.
func (s *shell) files(ctx context.Context) error {
	for _, key := range []string{"host", "user"} {
		if out, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(s.dir, key)).CombinedOutput(); err != nil {
			return fmt.Errorf("make a key: %w: %s", err, out)
		}
	}
	config := fmt.Sprintf(`ListenAddress %s:22
HostKey %s/host
AuthorizedKeysFile %s/user.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
PasswordAuthentication no
PrintMotd no
`, s.task.address(1), s.dir, s.dir)
	for name, text := range map[string]string{"sshd_config": config, "shadow": "root:*:1::::::\nsshd:!:1::::::\n"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *shell) run(ctx context.Context, d time.Duration) (*Outcome, error) {
	var mu sync.Mutex
	var sent, came []time.Time
	go func() { // ends with the client
		for {
			if _, err := s.client.stdout.ReadByte(); err != nil {
				return
			}
			mu.Lock()
			came = append(came, time.Now())
			mu.Unlock()
		}
	}()
	for end := time.Now().Add(d); time.Now().Before(end); {
		mu.Lock()
		sent = append(sent, time.Now())
		mu.Unlock()
		if _, err := s.client.stdin.Write([]byte{'a' + byte(len(sent)%26)}); err != nil {
			return nil, s.client.failed(err)
		}
		if err := phases.Sleep(ctx, s.task.Load.Interval); err != nil {
			return nil, err
		}
	}
	for limit := time.Now().Add(echoGrace); time.Now().Before(limit); {
		mu.Lock()
		all := len(came) >= len(sent)
		mu.Unlock()
		if all {
			break
		}
		if err := phases.Sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(came) > len(sent) {
		return nil, fmt.Errorf("%d echoes of %d keys", len(came), len(sent))
	}
	var echo []time.Duration
	for i := range came {
		echo = append(echo, came[i].Sub(sent[i]))
	}
	return &Outcome{QoE: QoE{Shell: &ShellResult{Keys: len(sent), Missing: len(sent) - len(came),
		EchoMs: verdict.Summarise(echo), Program: "OpenSSH"}}}, nil
}

func (s *shell) close() {
	s.client.end()
	s.sshd.end()
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
