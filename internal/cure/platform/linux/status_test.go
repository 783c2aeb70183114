package linux_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
)

// counted is a Runner that counts the calls of tc(8), on whose router one device's
// queues can't be read, and one has gone since it was listed.
type counted struct {
	*linuxfake.Kernel
	calls      int
	bad, ended string
}

func (c *counted) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	if argv[0] == "tc" {
		c.calls++
		if dev := argv[len(argv)-1]; dev == c.bad || dev == c.ended {
			c.Devices = slices.DeleteFunc(c.Devices, func(d *linuxfake.Device) bool { return d.Name == c.ended })
			return nil, []byte("Dump terminated"), errors.New("exit status 1")
		}
	}
	return c.Kernel.Run(ctx, argv, stdin)
}

// TestShapersOfMany: hundreds of classes take a few calls of tc(8), not one each; a device
// that can't be read, or that goes meanwhile, hides no other.
func TestShapersOfMany(t *testing.T) {
	k := linuxfake.New()
	run := func(line string) {
		t.Helper()
		if _, said, err := k.Run(t.Context(), strings.Fields(line), nil); err != nil {
			t.Fatalf("%s: %s", line, said)
		}
	}
	run("tc qdisc add dev lan root handle 1: htb default 1")
	for i := 1; i <= 225; i++ {
		run(fmt.Sprintf("tc class add dev lan parent 1: classid 1:%x htb rate 1000kbit", i))
		run(fmt.Sprintf("tc class add dev lan parent 1:%x classid 1:%x htb rate 1000kbit", i, 0x1000+i))
	}
	k.Devices = append(k.Devices, &linuxfake.Device{Name: "veth7", Up: true, MTU: 1500})
	c := &counted{Kernel: k, bad: "wan", ended: "veth7"}
	most := len(k.Devices) + 3
	shapers, err := linux.Shapers(t.Context(), c)
	if err != nil || len(shapers) != 2 {
		t.Fatalf("%+v, %v", shapers, err)
	}
	at := func(dev string) platform.Shaped {
		return shapers[slices.IndexFunc(shapers, func(s platform.Shaped) bool { return s.Device == dev })]
	}
	if !strings.Contains(at("lan").Says, "1.00 Mbit/s by htb") || !strings.Contains(at("wan").Says, "Dump terminated") {
		t.Errorf("%+v", shapers)
	}
	if c.calls > most {
		t.Errorf("%d calls of tc, more than %d", c.calls, most)
	}
}
