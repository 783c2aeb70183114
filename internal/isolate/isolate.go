// Package isolate holds back other hosts' traffic through this router for the
// length of a test. Its nftables rule works only while an element of a set
// lives, and elements expire in the kernel by themselves: a program that dies,
// however it dies, holds nobody back for longer than Lease.
package isolate

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"time"
)

// Lease is how long the rule outlives the program.
const Lease = 10 * time.Second

// table is the rule's own table; nothing else is touched.
const table = "unbloat_isolate"

// ruleset returns what nft(8) reads: it drops all that this machine forwards,
// as long as the set has the packet's protocol. What the machine itself sends
// and receives passes.
func ruleset() string {
	return fmt.Sprintf(`table inet %[1]s
delete table inet %[1]s
table inet %[1]s {
	set armed {
		typeof meta nfproto
		flags timeout
	}
	chain forward {
		type filter hook forward priority -300; policy accept;
		meta nfproto @armed drop
	}
}
`, table) + renewal()
}

// renewal returns what renews the lease.
func renewal() string {
	return fmt.Sprintf("add element inet %[1]s armed { ipv4 timeout %[2]ds, ipv6 timeout %[2]ds }\n", table, int(Lease.Seconds()))
}

// forget returns what empties the set, so that its elements may be added afresh.
func forget() string { return fmt.Sprintf("flush set inet %s armed\n", table) }

// removal returns what removes everything.
func removal() string {
	return fmt.Sprintf("table inet %[1]s\ndelete table inet %[1]s\n", table)
}

// nft runs a ruleset as one transaction.
func nft(ctx context.Context, rules string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = bytes.NewReader([]byte(rules))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("hold back other hosts' traffic with nft: %w: %s; --isolate needs root on the router, and the package nftables", err, bytes.TrimSpace(out))
	}
	return nil
}

// A Hold is other hosts' traffic held back.
type Hold struct {
	stop context.CancelFunc
	done chan struct{}
}

// Start holds other hosts' traffic back until Stop, or until Lease after the
// death of the program.
func Start(ctx context.Context) (*Hold, error) {
	if err := nft(ctx, ruleset()); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	h := &Hold{stop: stop, done: make(chan struct{})}
	go func() { // Stop waits for it
		defer close(h.done)
		tick := time.NewTicker(Lease / 4)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = nft(ctx, forget()+renewal()) // else the rule ends by itself
			}
		}
	}()
	return h, nil
}

// Stop lets all traffic pass again.
func (h *Hold) Stop() error {
	h.stop()
	<-h.done
	ctx, cancel := context.WithTimeout(context.Background(), Lease)
	defer cancel()
	return nft(ctx, removal())
}
