package measure

// Moved is how many bytes the flows have moved.
func (f *Flows) Moved() int64 { return f.moved() }

// Ended reports whether all of them have ended.
func (f *Flows) Ended() bool { return f.ended() }
