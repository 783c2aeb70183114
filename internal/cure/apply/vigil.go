package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"unbloat/internal/cure/platform"
)

// Times and counts of a vigil.
const (
	movedWithin = 2 * time.Second // before a change, in which a connection must have moved both ways to count
	stoppedFor  = 5 * time.Second // after it, without any that moves
	underWay    = 2 * time.Second // packets may have been on the line, in a long queue, since before the change
	lookAgain   = time.Second     // between looks: a router may have thousands of connections
	askedOf     = 6               // far ends of an interface that are asked before the change
	needProbes  = 2               // that must have answered, and then all fail
	vigilTime   = 3 * stoppedFor  // for all of it, with slow routers and probes that wait for answers
)

// A StoppedError says that a change was undone because nothing came through an interface any
// more.
type StoppedError struct {
	WAN       string
	Interface string
	Silent    []netip.Addr // that had answered before
}

func (e *StoppedError) Error() string {
	var silent []string
	for _, a := range e.Silent {
		silent = append(silent, a.String())
	}
	return fmt.Sprintf("change %s: all connections through %s that moved before have stopped for %s since, and %s, which had answered, did not; see what `unbloat doctor` finds, or plan with --classes off",
		e.WAN, e.Interface, stoppedFor, strings.Join(silent, " and "))
}

// A vigil watches over the connections that moved before a change, by interface.
type vigil map[string]*ward

// A ward is one interface.
type ward struct {
	flows  map[string]platform.Flow // that moved both ways before, by their keys, as they were last
	probes []netip.Addr             // far ends that answered before
	moved  time.Duration            // when one of the flows was last seen to move both ways
}

// look reports whether one of the flows has moved both ways since the last look.
func (w *ward) look(iface string, flows []platform.Flow) (moves bool) {
	for _, f := range flows {
		if was, watched := w.flows[f.Key]; watched && f.Interface == iface {
			moves = moves || moved(was, f)
			w.flows[f.Key] = f
		}
	}
	return moves
}

func moved(was, is platform.Flow) bool { return is.Out > was.Out && is.In > was.In }

// watchOver looks at the router's connections for a while, before a change, and returns what
// to watch over afterwards: nothing if that can't be told, because the router shows none, none
// moves, or too few of the far ends answer.
func (e *Engine) watchOver(ctx context.Context) vigil {
	before, err := e.Backend.Flows(ctx)
	if err != nil || len(before) == 0 || !sleep(ctx, movedWithin) {
		return nil
	}
	after, err := e.Backend.Flows(ctx)
	if err != nil {
		return nil
	}
	type key struct{ iface, key string }
	was, v := map[key]platform.Flow{}, vigil{}
	for _, f := range before {
		was[key{f.Interface, f.Key}] = f
	}
	for _, f := range after {
		if b, known := was[key{f.Interface, f.Key}]; known && moved(b, f) {
			if v[f.Interface] == nil {
				v[f.Interface] = &ward{flows: map[string]platform.Flow{}}
			}
			v[f.Interface].flows[f.Key] = f
		}
	}
	for i, x := range v {
		x.probes = e.Backend.Answers(ctx, i, farEnds(i, x, after))
		if len(x.probes) < needProbes {
			delete(v, i)
			continue
		}
		x.probes = x.probes[:needProbes]
	}
	return v
}

// farEnds returns whom to ask whether an interface works: the other ends of its connections,
// of those that move first.
func farEnds(of string, w *ward, flows []platform.Flow) (out []netip.Addr) {
	for _, moving := range []bool{true, false} {
		for _, f := range flows {
			if _, moves := w.flows[f.Key]; f.Interface == of && moves == moving && f.Far.IsValid() && !slices.Contains(out, f.Far) && len(out) < askedOf {
				out = append(out, f.Far)
			}
		}
	}
	return out
}

// stillMove waits until it is known of each interface that connections move, or that a far
// end answers. The error is a *StoppedError if neither is so. What moves soon after the change
// may have been under way before it, and tells nothing.
func (t *Transaction) stillMove(ctx context.Context, v vigil) error {
	w := t.engine.Backend
	changed := t.engine.uptime()
	for _, x := range v {
		x.moved = changed
	}
	for looked := changed; ; sleep(ctx, lookAgain) {
		flows, err := w.Flows(ctx)
		now := t.engine.uptime()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("change %s: interrupted: %w", t.journal.WAN, ctx.Err())
		case errors.Is(err, platform.ErrUnreachable):
			return err
		case err != nil: // it can't be told any more
			return nil
		}
		for _, i := range slices.Sorted(maps.Keys(v)) {
			x := v[i]
			switch moves := x.look(i, flows); {
			case moves && looked-changed >= underWay:
				delete(v, i)
			case moves:
				x.moved = now
			case now-x.moved < stoppedFor:
			case len(w.Answers(ctx, i, x.probes)) > 0:
				delete(v, i)
			case ctx.Err() == nil:
				return &StoppedError{WAN: t.journal.WAN, Interface: i, Silent: x.probes}
			}
		}
		if len(v) == 0 {
			return nil
		}
		looked = now
	}
}
