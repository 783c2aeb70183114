// This part holds back other hosts' traffic through this router during a
// test. Two things end that if the program dies in any way: a shell that waits
// for its end and removes the rule, and the rule itself, which only works while
// an element of a set exists that expires in the kernel after Lease.

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// Lease is how long the rule works after the program has died.
const isolationLease = 10 * time.Second

// table is the rule's table. Nothing else is changed.
const table = "unbloat_isolate"

// isolationRules returns the input of nft(8): everything that this machine forwards is
// dropped as long as the set contains the packet's protocol. The machine's own
// traffic passes.
func isolationRules() string {
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

// renewal returns the commands that renew the lease.
func renewal() string {
	return fmt.Sprintf("add element inet %[1]s armed { ipv4 timeout %[2]ds, ipv6 timeout %[2]ds }\n", table, int(isolationLease.Seconds()))
}

// forget returns the command that empties the set, so that its elements can be
// added again.
func forget() string { return fmt.Sprintf("flush set inet %s armed\n", table) }

// holdBack runs a ruleset as one transaction.
func holdBack(ctx context.Context, rules string) error {
	_, said, err := machine.Run(ctx, []string{"nft", "-f", "-"}, []byte(rules))
	if err != nil {
		return fmt.Errorf("hold back other hosts' traffic with nft: %w: %s; --isolate needs root on the router, and the package nftables", err, bytes.TrimSpace(said))
	}
	return nil
}

// An isolation holds back other hosts' traffic.
type isolation struct {
	stop   context.CancelFunc
	done   chan struct{}
	remove *exec.Cmd // removes the rule once life is closed
	life   io.Closer // closed by the system when the program dies
	output *bytes.Buffer
}

// isolate holds back other hosts' traffic until Stop or the death of the program.
func isolate(ctx context.Context) (*isolation, error) {
	h := &isolation{done: make(chan struct{}), output: &bytes.Buffer{}}
	// Neither ctx nor a signal ends it: it must run after anything has ended
	// the program.
	h.remove = exec.Command("sh", "-c", "trap '' HUP INT QUIT TERM; cat >/dev/null; exec nft delete table inet "+table)
	h.remove.Stdout, h.remove.Stderr = h.output, h.output
	life, err := h.remove.StdinPipe()
	if err == nil {
		h.life, err = life, h.remove.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the process that releases other hosts' traffic: %w", err)
	}
	if err := holdBack(ctx, isolationRules()); err != nil {
		_ = h.life.Close()
		_ = h.remove.Wait() // there is nothing to remove
		return nil, err
	}
	ctx, h.stop = context.WithCancel(ctx)
	go func() { // Stop waits for it
		defer close(h.done)
		tick := time.NewTicker(isolationLease / 4)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = holdBack(ctx, forget()+renewal()) // if this fails the rule ends by itself
			}
		}
	}()
	return h, nil
}

// Stop lets the traffic pass again.
func (h *isolation) Stop() error {
	h.stop()
	<-h.done
	_ = h.life.Close()
	if err := h.remove.Wait(); err != nil {
		return fmt.Errorf("release other hosts' traffic: %w: %s; the rule ends by itself after %v, and `nft delete table inet %s` removes what is left",
			err, bytes.TrimSpace(h.output.Bytes()), isolationLease, table)
	}
	return nil
}
