package measure

// Moved returns how many bytes the flows have moved.
func (f *Flows) Moved() int64 { return f.moved() }

// Ended reports whether all flows have ended.
func (f *Flows) Ended() bool { return f.ended() }
