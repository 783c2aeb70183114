package apply

// StubGuard replaces the guard process by f.
func (e *Engine) StubGuard(f func(wan, journal string) error) { e.arm = f }

// JournalPath returns where the journal of wan is kept.
func (e *Engine) JournalPath(wan string) string { return e.journalPath(wan) }
