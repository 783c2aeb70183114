package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attribute encodes one of netlink's.
func attribute(kind uint16, value []byte) []byte {
	b := make([]byte, unix.SizeofRtAttr, align(unix.SizeofRtAttr+len(value)))
	binary.NativeEndian.PutUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	return append(b, value...)[:cap(b)]
}

func number(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// addressMessage tells of an IPv4 address.
func addressMessage(kind uint16, index uint32, scope byte, local []byte, peer []byte) message {
	b := []byte{unix.AF_INET, 24, 0, scope}
	b = append(b, number(index)...)
	b = append(b, attribute(unix.IFA_ADDRESS, peer)...)
	return message{kind: kind, body: append(b, attribute(unix.IFA_LOCAL, local)...)}
}

// routeMessage tells of an IPv4 route.
func routeMessage(kind uint16, bits, table byte, index, priority uint32, gateway []byte) message {
	b := []byte{unix.AF_INET, bits, 0, 0, table, 0, 0, unix.RTN_UNICAST, 0, 0, 0, 0}
	b = append(b, attribute(unix.RTA_OIF, number(index))...)
	b = append(b, attribute(unix.RTA_PRIORITY, number(priority))...)
	return message{kind: kind, body: append(b, attribute(unix.RTA_GATEWAY, gateway)...)}
}

// A new address and a default route by another gateway are another line. What is told
// again is not, nor are routes to single networks and addresses of the link alone.
func TestWays(t *testing.T) {
	w := &ways{addresses: map[addressKey]bool{}, routes: map[routeKey]string{}}
	a, b, peer := []byte{198, 51, 100, 1}, []byte{198, 51, 100, 2}, []byte{192, 0, 2, 1}
	const main = unix.RT_TABLE_MAIN
	for i, c := range []struct {
		m    message
		want int32
	}{
		{addressMessage(unix.RTM_NEWADDR, 3, unix.RT_SCOPE_UNIVERSE, a, peer), 3},
		{addressMessage(unix.RTM_NEWADDR, 3, unix.RT_SCOPE_UNIVERSE, a, peer), 0},
		{addressMessage(unix.RTM_NEWADDR, 3, unix.RT_SCOPE_UNIVERSE, b, peer), 3},
		{addressMessage(unix.RTM_NEWADDR, 4, unix.RT_SCOPE_LINK, a, peer), 0},
		{addressMessage(unix.RTM_DELADDR, 3, unix.RT_SCOPE_UNIVERSE, a, peer), 0},
		{addressMessage(unix.RTM_NEWADDR, 3, unix.RT_SCOPE_UNIVERSE, a, peer), 3},
		{routeMessage(unix.RTM_NEWROUTE, 0, main, 3, 100, a), 0}, // the first
		{routeMessage(unix.RTM_NEWROUTE, 0, main, 3, 100, a), 0},
		{routeMessage(unix.RTM_NEWROUTE, 24, main, 3, 100, b), 0},
		{routeMessage(unix.RTM_NEWROUTE, 0, 7, 3, 100, b), 0},
		{routeMessage(unix.RTM_NEWROUTE, 0, main, 3, 100, b), 3},
		{routeMessage(unix.RTM_NEWROUTE, 0, main, 3, 100, a), 3},
		{routeMessage(unix.RTM_DELROUTE, 0, main, 3, 100, a), 0},
		{routeMessage(unix.RTM_NEWROUTE, 0, main, 3, 100, a), 0}, // as it was
		{routeMessage(unix.RTM_NEWROUTE, 0, main, 3, 100, b), 3},
		{routeMessage(unix.RTM_NEWROUTE, 0, main, 4, 100, a), 0},
		{message{kind: unix.RTM_NEWROUTE, body: []byte{1}}, 0},
		{message{kind: unix.RTM_NEWADDR, body: []byte{1}}, 0},
		{message{kind: unix.RTM_NEWLINK}, 0},
	} {
		if got := w.changed(c.m); got != c.want {
			t.Errorf("message %d: interface %d, want %d", i, got, c.want)
		}
	}
}

// A rule of policy routing that comes or goes is told of: it may be one that looks at marks.
func TestRulesAreToldOf(t *testing.T) {
	told := 0
	for _, kind := range []uint16{unix.RTM_NEWRULE, unix.RTM_DELRULE} {
		links{}.route(message{kind: kind}, func(Event) { told++ })
	}
	if told != 2 {
		t.Errorf("told of %d of 2", told)
	}
}

// What tells of changes and fails is opened anew, as often as that takes; that is said,
// all is looked at, and what is told then is heard.
func TestHeardAgain(t *testing.T) {
	pipes := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		return r, w
	}
	first, end := pipes()
	second, say := pipes()
	ctx, cancel := context.WithCancel(t.Context())
	var events []Event
	opened, heard, done := 0, make(chan message), make(chan bool)
	go func() {
		defer close(done)
		hear(ctx, first, func() (*os.File, error) {
			if opened++; opened == 1 {
				return nil, errors.New("too many open files")
			}
			return second, nil
		}, func(m message) { heard <- m }, func(e Event) { events = append(events, e) })
	}()
	end.Close() // the reader's error is io.EOF
	m := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint16(m[4:], unix.RTM_NEWRULE)
	if _, err := say.Write(m); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-heard:
		if m.kind != unix.RTM_NEWRULE {
			t.Errorf("%+v", m)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing is heard any more")
	}
	cancel()
	<-done
	say.Close()
	if len(events) != 2 || !errors.Is(events[0].Trouble, io.EOF) || !strings.Contains(events[0].Trouble.Error(), "too many open files") || !errors.Is(events[1].Trouble, io.EOF) {
		t.Errorf("it told %v", events)
	}
}

// renewed counts.
type renewed struct {
	Follower
	times int
}

func (r *renewed) NewLine() { r.times++ }

// The follower of a line hears of its interface's new route, and no other does.
func TestReroutedReachesTheFollower(t *testing.T) {
	d := &Daemon{wans: map[string]*wan{}}
	lines := map[string]*renewed{}
	for _, name := range []string{"eth0", "wwan0"} {
		lines[name] = &renewed{}
		w := &wan{name: name}
		w.following.runs.Store(&pursuit{Follower: lines[name]})
		d.wans[name] = w
	}
	d.wans["eth1"] = &wan{name: "eth1"} // is not followed
	far := &renewed{}
	w := &wan{name: "wwan0", routerName: "ssh://192.0.2.1"}
	w.following.runs.Store(&pursuit{Follower: far})
	d.wans["far"] = w
	d.event(Event{Rerouted: []string{"wwan0"}})
	d.event(Event{Rerouted: []string{"eth1"}})
	if lines["wwan0"].times != 1 || lines["eth0"].times != 0 || far.times != 0 {
		t.Errorf("wwan0 %d, eth0 %d, wwan0 of another router %d times", lines["wwan0"].times, lines["eth0"].times, far.times)
	}
}
