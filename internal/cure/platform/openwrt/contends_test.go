package openwrt_test

import (
	"errors"
	"strings"
	"testing"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/testkit/fake"
)

// TestContends: a WAN that sqm-scripts shapes can't be kept by anybody else; the
// error says how to hand it over.
func TestContends(t *testing.T) {
	d := openwrt.Driver().OwnTC()
	o := fake.NewOpenWrt()
	ask := func(text string) error {
		o.Files[fake.SQMConfig] = text
		return d.Contends(t.Context(), o, "wan")
	}
	const section = "config queue 'home'\n\toption enabled '%'\n\toption interface '&'\n\toption download '5000'\n"
	with := func(enabled, iface string) string {
		return strings.NewReplacer("%", enabled, "&", iface).Replace(section)
	}
	var pre *platform.PreconditionError
	if err := ask(with("1", "wan")); !errors.As(err, &pre) || !strings.Contains(err.Error(), "uci set sqm.home.enabled=0") {
		t.Errorf("%v", err)
	}
	for _, text := range []string{with("0", "wan"), with("1", "lan"), ""} {
		if err := ask(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	delete(o.Files, fake.SQMConfig)
	if err := d.Contends(t.Context(), o, "wan"); err != nil {
		t.Errorf("without sqm-scripts: %v", err)
	}
}
