package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/metrics"
)

// TestBindsFirst: where the address of the metrics or of the page is taken, the daemon
// says so before it has touched a router: a service manager that starts it again and
// again changes nothing meanwhile.
func TestBindsFirst(t *testing.T) {
	taken := errors.New("bind: address already in use")
	for what, says := range map[string]string{"metrics = \"127.0.0.1:9836\"\n" + oneWAN: "metrics", oneWAN + "[ui]\nlisten = \"127.0.0.1:7690\"\n": "page"} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(dir, "unbloat.toml")
			if err := os.WriteFile(file, []byte(what), 0o644); err != nil {
				t.Fatal(err)
			}
			opened := 0
			err := Run(t.Context(), Options{
				File: file, Dir: dir, Memory: filepath.Join(dir, "state.json"), Getenv: func(string) string { return "" },
				Watch: func(context.Context, func(Event)) (<-chan struct{}, error) { return nil, nil },
				Open:  func(context.Context, config.WAN) (*Router, error) { opened++; return nil, errGone },
				Metrics: func(context.Context, string, func() metrics.Snapshot) error {
					synctest.Wait() // whatever goes on besides comes as far as it can
					return taken
				},
				UI: func(context.Context, config.Config, PageHost) (func(PageParams) Page, <-chan struct{}, error) {
					synctest.Wait()
					return nil, nil, taken
				},
			})
			synctest.Wait()
			if !errors.Is(err, taken) || !strings.Contains(err.Error(), says) || opened > 0 {
				t.Errorf("the %s: the router was reached %d times, and it says %v", says, opened, err)
			}
		})
	}
}
