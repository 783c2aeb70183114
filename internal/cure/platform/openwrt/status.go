package openwrt

import (
	"context"
	"fmt"
	"strings"

	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
	"unbloat/internal/cure/platform/linux"
)

// Shapers explains the kernel's shapers and reports each section of
// /etc/config/sqm that is not in force.
func (b *Backend) Shapers(ctx context.Context, _ string) ([]platform.Shaped, error) {
	files, err := conf.Read(ctx, b.Runner, Config)
	if err != nil {
		return nil, err
	}
	sections, err := sqm.Parse(files.Text(Config))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", Config, err)
	}
	owners := map[string]linux.Owner{}
	var idle []platform.Shaped // sections without a shaper in the kernel
	for _, s := range sections {
		if s.Get("enabled") != "1" {
			continue
		}
		down, up, err := s.Rates()
		if err != nil {
			return nil, fmt.Errorf("read %s, section %s: %w", Config, s.Name, err)
		}
		own := strings.HasPrefix(s.Name, sqm.SectionName+"_")
		held, err := linux.HeldBy(ctx, b.Runner, s.Get("interface"))
		if err != nil {
			return nil, err
		}
		for _, h := range held {
			if h.Enters {
				h.Device = h.IFB
			}
			if _, named := owners[h.Device]; !named {
				owners[h.Device] = owner(s, own)
			}
		}
		for _, d := range []linux.Held{{Device: s.Get("interface"), Rate: up}, {Device: s.Get("interface"), Rate: down, Enters: true}} {
			if d.Rate != 0 && !runs(held, d) {
				verb := map[bool]string{true: "enters", false: "leaves"}[d.Enters]
				idle = append(idle, platform.Shaped{Device: d.Device, Ours: own, Queue: s.Get("qdisc"), Counters: []tc.Counters{},
					Says: fmt.Sprintf("section %s of %s should hold what %s %s to %s, but the kernel does not: look at `logread -e SQM`, then %s restart", s.Name, Config, verb, d.Device, d.Rate.Short(), Service)})
			}
		}
	}
	out, err := linux.ShapersOf(ctx, b.Runner, owners)
	return append(out, idle...), err
}

// owner returns the section of sqm-scripts' settings that made a shaper.
func owner(s sqm.Section, own bool) linux.Owner {
	whose := "by hand or by LuCI"
	if own {
		whose = "unbloat's"
	}
	return linux.Owner{Name: fmt.Sprintf("sqm-scripts, section %s, %s", s.Name, whose), Ours: own}
}

// runs reports whether the kernel shapes a direction at its rate, as tc shows
// it.
func runs(held []linux.Held, want linux.Held) bool {
	for _, h := range held {
		if h.Enters == want.Enters && (h.Rate == want.Rate || h.Rate == tc.ShownRate(want.Rate)) {
			return true
		}
	}
	return false
}
