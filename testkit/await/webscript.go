// This file runs scripts/web for tests: it builds the web pages and drives them
// in a browser.

package await

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

// exitMissing is what scripts/web exits with where a program that it needs is missing.
const exitMissing = 5

// WebScript runs scripts/web, and returns what it prints. It ends the test if that fails or takes longer than limit.
// The test is skipped if the script lacks a program, and with -short.
func WebScript(t *testing.T, limit time.Duration, args ...string) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(Root(t), "scripts", "web"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitMissing {
		t.Skipf("SKIPPED: %s", strings.TrimSpace(errs.String()))
	}
	if err != nil {
		t.Fatalf("scripts/web %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.Bytes()
}
