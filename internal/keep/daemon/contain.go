package daemon

import (
	"errors"
	"fmt"

	"unbloat/guard"
)

// contain does what somebody has asked for. A panic in it becomes an error of the code
// internal, and the daemon goes on.
func (d *Daemon) contain(doing string, f func() (any, error)) (out any, err error) {
	whole := guard.Contain(func() { out, err = f() }, func(what any, stack []byte) { d.panicked(doing, what, stack) })
	if !whole {
		return nil, &Error{CodeInternal, doing + ": the daemon has an internal error, which its log describes; all else goes on"}
	}
	return out, err
}

// isInternal says whether an error is what a panic became.
func isInternal(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == CodeInternal
}

// panicked counts a panic that was contained, and logs it. Whoever can bring it about
// again and again does not fill the log: after the first ten only each power of two is
// told.
func (d *Daemon) panicked(doing string, what any, stack []byte) {
	const all = 10
	n := d.panics.Add(1)
	if n > all && n&(n-1) != 0 {
		return
	}
	d.log("%s: PANIC %d: %q; please report this:\n%s", doing, n, fmt.Sprint(what), stack)
}
