package serve

import (
	"testing"
	"time"

	"unbloat/testkit/await"
)

// The embedded pages are built from their sources.
func TestDistMatchesSources(t *testing.T) { await.WebScript(t, 2*time.Minute, "check") }
