package webtest

import (
	"testing"
	"time"

	"unbloat/web/webscript"
)

// The embedded pages are built from their sources.
func TestDistMatchesSources(t *testing.T) { webscript.Run(t, 2*time.Minute, "check") }
