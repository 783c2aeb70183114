package guard

import "runtime/debug"

// Contain calls f. A panic in it is an error of the program that somebody's request, or
// what a machine elsewhere sent, has brought to light: it ends what f did, and not the
// program, which others need. panicked, if it is not nil, is told of it, with the place.
// whole says whether f came to its end.
func Contain(f func(), panicked func(what any, stack []byte)) (whole bool) {
	defer func() {
		if whole {
			return
		}
		if what := recover(); panicked != nil {
			panicked(what, debug.Stack())
		}
	}()
	f()
	return true
}
