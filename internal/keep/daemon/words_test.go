package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/config"
)

// TestOwnWords: what the daemon says of settings is as its own file has them: TOML, or OpenWrt's.
func TestOwnWords(t *testing.T) {
	for _, c := range []struct{ text, remedy, page string }{
		{oneWAN, `install it, or use classes = "off"`, `add [ui] with listen = "192.168.1.1:7690" to its configuration, `},
		{"config wan\n\toption interface 'wan'\n\toption lan 'lan'\n\toption down '50 Mbit/s'\n\toption up '10 Mbit/s'\n", "install it, or use option classes 'off'", "add config ui 'page' with option listen '192.168.1.1:7690' to its configuration, "},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			x := linuxTown(t, dir, c.text, func(o *Options) {
				o.Open = func(context.Context, config.WAN) (*Router, error) {
					return nil, &platform.PreconditionError{Doing: "shape wan", What: "there is no nft(8)", Remedy: "install it", Or: &platform.Setting{Key: "classes", Value: "off"}}
				}
			})
			defer x.stop()
			synctest.Wait()
			if s, _ := x.only().snapshot(); s.Why != "shape wan: there is no nft(8); "+c.remedy {
				t.Errorf("%q", s.Why)
			}
			var e *Error
			if _, err := x.d.Page().Page(t.Context(), Name{}, PageParams{Enter: EnterViewer}); !errors.As(err, &e) || e.Code != CodePrecondition || !strings.Contains(e.Text, c.page) {
				t.Errorf("%v", err)
			}
		})
	}
}
