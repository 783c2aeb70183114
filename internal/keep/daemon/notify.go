package daemon

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// A notifier tells the service manager how the daemon is, as sd_notify(3) says.
// Without a service manager it does nothing.
type notifier struct {
	address  string        // NOTIFY_SOCKET
	watchdog time.Duration // the manager restarts us after this time without a word; 0: never
	last     string        // last status
}

// newNotifier reads what the service manager has put into the environment.
func newNotifier(getenv func(string) string, pid int) *notifier {
	n := &notifier{address: getenv("NOTIFY_SOCKET")}
	var us int64
	if _, err := fmt.Sscan(getenv("WATCHDOG_USEC"), &us); err == nil && us > 0 {
		if of := getenv("WATCHDOG_PID"); of == "" || of == fmt.Sprint(pid) {
			n.watchdog = time.Duration(us) * time.Microsecond
		}
	}
	return n
}

// send sends assignments, each as in "READY=1". A manager that does not listen is
// no reason to do anything else.
func (n *notifier) send(lines ...string) {
	if n.address == "" {
		return
	}
	address := n.address
	if address[0] == '@' { // an abstract socket
		address = "\x00" + address[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write([]byte(strings.Join(lines, "\n")))
}

// status tells in words how the daemon is, if that has changed.
func (n *notifier) status(text string) {
	text = strings.ReplaceAll(text, "\n", " ")
	if text != n.last {
		n.last = text
		n.send("STATUS=" + text)
	}
}
