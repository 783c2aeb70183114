package netio

import (
	"net"
	"testing"
)

// This machine reaches itself through the loopback, whatever its name is.
func TestInterfaceTo(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost"} {
		name, err := InterfaceTo(t.Context(), host)
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		if l, err := net.InterfaceByName(name); err != nil || l.Flags&net.FlagLoopback == 0 {
			t.Errorf("%s is reached through %q, which is no loopback (%v)", host, name, err)
		}
	}
	if name, err := InterfaceTo(t.Context(), "no such host"); err == nil {
		t.Errorf("a host that cannot be is reached through %s", name)
	}
}
