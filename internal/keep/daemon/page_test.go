package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"unbloat/internal/keep/config"
)

// TestPageReloaded: a reload serves the page where the configuration says now, after the
// old one has ended; a page that can't be served is said, and the daemon goes on.
func TestPageReloaded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var did []string
		x := linuxTown(t, dir, oneWAN, func(o *Options) {
			o.UI = func(ctx context.Context, c config.Config, _ PageHost) (func(PageParams) Page, <-chan struct{}, error) {
				at := c.UI.Listen.String()
				if c.UI.Listen.Port() == 1 {
					return nil, nil, errors.New("the address is in use")
				}
				did = append(did, "serve "+at)
				ended := make(chan struct{})
				go func() {
					<-ctx.Done()
					did = append(did, "end "+at)
					close(ended)
				}()
				return func(PageParams) Page { return Page{URLs: []string{at}} }, ended, nil
			}
		})
		defer x.stop()
		for _, c := range []struct {
			ui   string
			does []string
			page bool
		}{
			{"[ui]\nlisten = \"127.0.0.1:7690\"\n", []string{"serve 127.0.0.1:7690"}, true},
			{"[ui]\nlisten = \"127.0.0.1:7690\"\n", nil, true},
			{"[ui]\nlisten = \"127.0.0.1:7690\"\ntls = true\n", []string{"end 127.0.0.1:7690", "serve 127.0.0.1:7690"}, true},
			{"[ui]\nlisten = \"127.0.0.1:1\"\n", []string{"end 127.0.0.1:7690"}, false},
			{"[ui]\nlisten = \"127.0.0.1:7691\"\n", []string{"serve 127.0.0.1:7691"}, true},
			{"", []string{"end 127.0.0.1:7691"}, false},
		} {
			did = nil
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(x.d.o.File)), []byte(oneWAN+c.ui), 0o600); err != nil {
				t.Fatal(err)
			}
			x.d.reload(t.Context())
			synctest.Wait()
			x.d.mu.Lock()
			page := x.d.page != nil
			x.d.mu.Unlock()
			if !slices.Equal(did, c.does) || page != c.page {
				t.Errorf("%q: it did %q, and has a page: %t", c.ui, did, page)
			}
		}
	})
}
