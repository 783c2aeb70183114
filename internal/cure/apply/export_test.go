package apply

// StubWatchdog replaces the watchdog process by f.
func (e *Engine) StubWatchdog(f func(wan, journal string) error) { e.arm = f }

// JournalPath returns where the journal of wan is kept.
func (e *Engine) JournalPath(wan string) string { return e.journalPath(wan) }
