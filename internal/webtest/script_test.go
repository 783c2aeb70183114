package webtest

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Script runs scripts/web. The test is skipped if that lacks a program.
func Script(t *testing.T, limit time.Duration, args ...string) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", "web"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 5 {
		t.Skipf("SKIPPED: %s", strings.TrimSpace(errs.String()))
	}
	if err != nil {
		t.Fatalf("scripts/web %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.Bytes()
}

// The embedded page is built from its sources.
func TestDistMatchesSources(t *testing.T) { Script(t, 2*time.Minute, "check") }
