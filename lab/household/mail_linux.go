package household

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"unbloat/unit"
)

// Sizes of messages: half are below 6 kB, the mean is 16 kB, and a few carry
// photographs.
const (
	messageMedian = 6_000
	messageSigma  = 1.4 // of the logarithm
	messageMost   = 2_000_000
	messageLeast  = 700
)

// mail is mbsync (isync) fetching a whole mailbox from Dovecot.
type mail struct {
	task    Task
	dir     string
	mbsync  string
	dovecot *program
}

// mailUser is the user of no account that owns the mailbox on the server.
const mailUser = 65534

func (m *mail) prepare(ctx context.Context) (err error) {
	dovecot, err := need("dovecot", "dovecot-imapd")
	if err != nil {
		return err
	}
	if m.mbsync, err = need("mbsync", "isync"); err != nil {
		return err
	}
	if err := m.task.giveAddresses(ctx, 1); err != nil {
		return err
	}
	if m.dir, err = os.MkdirTemp("/dev/shm", "mail-"); err != nil {
		return err
	}
	if err := os.Chmod(m.dir, 0o755); err != nil { // Dovecot's unprivileged parts pass through
		return err
	}
	if err := m.fill(); err != nil {
		return fmt.Errorf("fill the mailbox: %w", err)
	}
	for name, text := range map[string]string{"dovecot.conf": m.serverConfig(), "mbsyncrc": m.clientConfig()} {
		if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if m.dovecot, err = start(ctx, m.task.Home.ServerNode, dovecot, "-F", "-c", m.dir+"/dovecot.conf"); err != nil {
		return err
	}
	if err := answers(ctx, m.task.address(1)+":143"); err != nil {
		log, _ := os.ReadFile(m.dir + "/log")
		return m.dovecot.failed(fmt.Errorf("%w; Dovecot's log: %s", err, log))
	}
	return nil
}

// fill writes the mailbox, the same in every run.
func (m *mail) fill() error {
	random := rand.New(rand.NewPCG(1, 3))
	cur := filepath.Join(m.dir, "server", "cur")
	for _, d := range []string{cur, filepath.Join(m.dir, "server", "new"), filepath.Join(m.dir, "server", "tmp"), filepath.Join(m.dir, "near")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	const line = "The quick brown fox jumps over the lazy dog, and then it rests. "
	var text bytes.Buffer
	for i := range m.task.Load.Messages {
		size := int(messageMedian * math.Exp(messageSigma*random.NormFloat64()))
		size = min(max(size, messageLeast), messageMost)
		text.Reset()
		fmt.Fprintf(&text, "From: a%d@lab\r\nTo: home@lab\r\nSubject: message %d\r\nMessage-ID: <%d@lab>\r\nDate: Thu, 01 Jan 2026 00:00:00 +0000\r\n\r\n", i, i, i)
		for text.Len() < size {
			fmt.Fprintf(&text, "%s%016x\r\n", line, random.Uint64())
		}
		if err := os.WriteFile(fmt.Sprintf("%s/%d.M%dP1.lab:2,S", cur, 1700000000+i, i), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return filepath.WalkDir(filepath.Join(m.dir, "server"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, mailUser, mailUser)
	})
}

func (m *mail) serverConfig() string {
	return fmt.Sprintf(`protocols = imap
listen = %[1]s
base_dir = %[2]s/run
state_dir = %[2]s/state
log_path = %[2]s/log
ssl = no
disable_plaintext_auth = no
mail_location = maildir:%[2]s/server
mail_fsync = never
passdb {
  driver = static
  args = nopassword=y
}
userdb {
  driver = static
  args = uid=%[3]d gid=%[3]d home=%[2]s/server
}
service imap-login {
  inet_listener imap {
    port = 143
  }
  inet_listener imaps {
    port = 0
  }
}
`, m.task.address(1), m.dir, mailUser)
}

func (m *mail) clientConfig() string {
	return fmt.Sprintf(`FSync no

IMAPAccount far
Host %[1]s
Port 143
User home
Pass home
SSLType None
AuthMechs LOGIN

IMAPStore far
Account far

MaildirStore near
Path %[2]s/near/
Inbox %[2]s/near/INBOX

Channel all
Far :far:
Near :near:
Patterns INBOX
Create Near
Sync Pull
SyncState *
`, m.task.address(1), m.dir)
}

func (m *mail) run(ctx context.Context, d time.Duration) (*Outcome, error) {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	cmd := exec.CommandContext(limited, m.mbsync, "-q", "-c", m.dir+"/mbsyncrc", "all")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	start := time.Now()
	err := cmd.Run()
	r := &MailResult{Of: m.task.Load.Messages, Seconds: time.Since(start).Seconds(), Done: err == nil}
	if err != nil && limited.Err() == nil {
		log, _ := os.ReadFile(m.dir + "/log")
		return nil, fmt.Errorf("mbsync: %w: %s; Dovecot's log: %s", err, bytes.TrimSpace(said.Bytes()), log)
	}
	for _, sub := range []string{"cur", "new"} {
		entries, err := os.ReadDir(filepath.Join(m.dir, "near", "INBOX", sub))
		if err != nil {
			return nil, fmt.Errorf("count what came: %w", err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				return nil, fmt.Errorf("count what came: %w", err)
			}
			r.Messages++
			r.Bytes += info.Size()
		}
	}
	return &Outcome{Goodput: unit.Rate(float64(r.Bytes) * 8 / r.Seconds), QoE: QoE{Mail: r}}, nil
}

func (m *mail) close() {
	m.dovecot.end()
	if m.dir != "" {
		_ = os.RemoveAll(m.dir)
	}
}
