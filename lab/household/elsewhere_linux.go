package household

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/measure/phases"
)

// address returns the k-th address, from 1, of a load's own on the Internet.
func (t Task) address(k int) string { return fmt.Sprintf("%s.%d.%d", internetPrefix, t.Index, k) }

// giveAddresses gives the server node n addresses of the load's own. They are
// on the interface towards the home: libtorrent listens on an address's own only.
func (t Task) giveAddresses(ctx context.Context, n int) error {
	var batch strings.Builder
	for k := 1; k <= n; k++ {
		fmt.Fprintf(&batch, "addr add %s/32 dev eth0\n", t.address(k))
	}
	return ipBatch(ctx, t.Home.ServerNode, batch.String())
}

func ipBatch(ctx context.Context, node, text string) error {
	cmd := exec.CommandContext(ctx, "ip", "-n", node, "-batch", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("give %s its addresses: %w: %s", node, err, bytes.TrimSpace(out))
	}
	return nil
}

// A program is one that a load started in a node of the home.
type program struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
	waited bool
}

// in returns a command that runs in a node of the home.
func in(ctx context.Context, node string, argv ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", node}, argv...)...)
}

// need finds a program, or says which Debian package brings it.
func need(name, pkg string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("needs %s, which is not installed: apt-get install %s", name, pkg)
	}
	return path, nil
}

// start starts a program in a node, with pipes to talk to it.
func start(ctx context.Context, node string, argv ...string) (*program, error) {
	p := &program{cmd: in(ctx, node, argv...)}
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ended with all it starts
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdout = bufio.NewReaderSize(out, 1<<16)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", argv[0], node, err)
	}
	return p, nil
}

// line reads one line that the program prints.
func (p *program) line() (string, error) {
	s, err := p.stdout.ReadString('\n')
	if err != nil {
		return "", p.failed(err)
	}
	return strings.TrimSuffix(s, "\n"), nil
}

// say writes one line to the program.
func (p *program) say(s string) error {
	if _, err := io.WriteString(p.stdin, s+"\n"); err != nil {
		return p.failed(err)
	}
	return nil
}

// failed ends the program and adds what it printed to the error.
func (p *program) failed(err error) error {
	p.end()
	return fmt.Errorf("%s: %w: %s", strings.Join(p.cmd.Args[3:min(5, len(p.cmd.Args))], " "), err, bytes.TrimSpace(p.stderr.Bytes()))
}

// end makes sure that the program and all it started are gone.
func (p *program) end() {
	if p == nil || p.waited {
		return
	}
	p.waited = true
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// answers waits until something accepts connections at addr.
func answers(ctx context.Context, addr string) error {
	var d net.Dialer
	var err error
	for range 100 {
		attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
		var c net.Conn
		c, err = d.DialContext(attempt, "tcp4", addr)
		cancel()
		if err == nil {
			return c.Close()
		}
		if e := phases.Sleep(ctx, 50*time.Millisecond); e != nil {
			return e
		}
	}
	return fmt.Errorf("nothing answers at %s: %w", addr, err)
}

// listen opens listeners in another node of the home. The sockets stay there,
// so that this process is both ends of what it loads the line with.
func listen(node string, addrs ...string) ([]net.Listener, error) {
	var out []net.Listener
	err := inside(node, func() error {
		for _, a := range addrs {
			l, err := net.Listen("tcp4", a)
			if err != nil {
				return err
			}
			out = append(out, l)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", node, err)
	}
	return out, nil
}

// listenUDP is listen for datagrams, at one address.
func listenUDP(node, addr string) (*net.UDPConn, error) {
	var out *net.UDPConn
	err := inside(node, func() error {
		a, err := net.ResolveUDPAddr("udp4", addr)
		if err != nil {
			return err
		}
		out, err = net.ListenUDP("udp4", a)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", node, err)
	}
	return out, nil
}

// inside runs a function in the network of another node of the home. What it
// opens stays there.
func inside(node string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			ns, err := os.Open("/run/netns/" + node)
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-done
}
