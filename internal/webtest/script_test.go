package webtest

import (
	"testing"
	"time"

	"unbloat/web/script"
)

// The embedded pages are built from their sources.
func TestDistMatchesSources(t *testing.T) { script.Run(t, 2*time.Minute, "check") }
