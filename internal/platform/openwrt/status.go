package openwrt

import (
	"context"
	"fmt"
	"strings"

	"unbloat/internal/lang/sqm"
	"unbloat/internal/lang/tc"
	"unbloat/internal/platform"
	"unbloat/internal/platform/conf"
	"unbloat/internal/platform/linux"
)

// Shapers explains what the kernel holds and, for each section of
// /etc/config/sqm, whether the kernel holds its interface as it says.
func (b *Backend) Shapers(ctx context.Context, _ string) ([]platform.Shaped, error) {
	out, err := linux.Shapers(ctx, b.Runner)
	if err != nil {
		return nil, err
	}
	files, err := conf.Read(ctx, b.Runner, Config)
	if err != nil {
		return nil, err
	}
	sections, err := sqm.Parse(files.Text(Config))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", Config, err)
	}
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
			mark(out, h, s, own)
		}
		for _, d := range []linux.Held{{Device: s.Get("interface"), Rate: up}, {Device: s.Get("interface"), Rate: down, Enters: true}} {
			if d.Rate != 0 && !runs(held, d) {
				verb := map[bool]string{true: "enters", false: "leaves"}[d.Enters]
				out = append(out, platform.Shaped{Device: d.Device, Ours: own, Queue: s.Get("qdisc"), Counters: []tc.Counters{},
					Says: fmt.Sprintf("the section %s of %s wants what %s %s held to %s, and the kernel does not do that: look at `logread -e SQM`, then %s restart", s.Name, Config, verb, d.Device, d.Rate.Short(), Service)})
			}
		}
	}
	return out, nil
}

// mark says of what the kernel holds which section it comes from.
func mark(shapers []platform.Shaped, h linux.Held, s sqm.Section, own bool) {
	dev := h.Device
	if h.Enters {
		dev = h.IFB
	}
	whose := "by hand or by LuCI"
	if own {
		whose = "unbloat's"
	}
	for i := range shapers {
		if shapers[i].Device == dev && !shapers[i].Ours {
			shapers[i].Ours = own
			shapers[i].Says = strings.ReplaceAll(shapers[i].Says, "not unbloat's", fmt.Sprintf("sqm-scripts, section %s, %s", s.Name, whose))
		}
	}
}

// runs reports whether the kernel holds a direction to its rate, as tc shows it.
func runs(held []linux.Held, want linux.Held) bool {
	for _, h := range held {
		if h.Enters == want.Enters && (h.Rate == want.Rate || h.Rate == tc.ShownRate(want.Rate)) {
			return true
		}
	}
	return false
}
