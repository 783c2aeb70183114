package daemon

import (
	"bytes"
	"fmt"
	"os"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/config"
)

// This file writes the rates that a person or a tuning has kept into the configuration.

// storeRates writes the rates of a plan that was kept into the configuration, so
// that they are the usual ones from now on.
func (w *wan) storeRates(p plan.Plan) (notes []string) {
	c, err := w.d.rewrite(w.config, ratesOf(p))
	if err != nil {
		w.d.trouble("%s: %v", w.config.Name(), err)
		return []string{err.Error()}
	}
	w.config = c
	w.d.log("%s: %s", w.config.Name(), "the rates that were kept are in the configuration")
	return nil
}

// ratesOf returns a plan's rates as settings of the configuration: what the line carries,
// and the shaper's own rate, each as far as the plan was made from it; and its framing, if
// that was measured.
func ratesOf(p plan.Plan) []config.Setting {
	text := func(r fmt.Stringer, set bool) string {
		if !set {
			return ""
		}
		return r.String()
	}
	if p.Basis == nil { // the numbers were set by hand
		return []config.Setting{{Key: "down"}, {Key: "up"}, {Key: "shape_down", Value: text(p.DownBps, p.DownBps != 0)}, {Key: "shape_up", Value: text(p.UpBps, p.UpBps != 0)}}
	}
	l, pref := p.Basis.Line, p.Basis.Preferences
	return []config.Setting{
		{Key: "down", Value: text(l.Down, l.Down != 0)}, {Key: "up", Value: text(l.Up, l.Up != 0)},
		{Key: "shape_down", Value: pref.Down.String()}, {Key: "shape_up", Value: pref.Up.String()},
		{Key: "framing", Value: l.FramingText()},
	}
}

// rewrite writes settings of a WAN into the configuration file, and returns the
// WAN as it is there then.
func (d *Daemon) rewrite(of config.WAN, settings []config.Setting) (config.WAN, error) {
	d.fileMu.Lock()
	defer d.fileMu.Unlock()
	text, err := os.ReadFile(d.o.File)
	if err != nil {
		return of, fmt.Errorf("write the new rates into the configuration: %w; the old ones apply when the daemon starts again", err)
	}
	c, err := config.Parse(d.o.File, text)
	if err != nil {
		return of, fmt.Errorf("write the new rates into the configuration: %w; the old ones apply when the daemon starts again", err)
	}
	for i, w := range c.WANs {
		if keyOf(w.Router, w.Interface) != keyOf(of.Router, of.Interface) {
			continue
		}
		out, err := config.Set(d.o.File, text, i, settings)
		if err != nil {
			return of, err
		}
		if err := d.overwrite(text, out); err != nil {
			return of, fmt.Errorf("write the new rates into the configuration: %w; the old ones apply when the daemon starts again", err)
		}
		if c, err = config.Parse(d.o.File, out); err != nil {
			return of, err
		}
		return c.WANs[i], nil
	}
	return of, fmt.Errorf("write the new rates into the configuration: %s no longer has a %s of %s", d.o.File, of.Syntax().Table("wan"), of.Name())
}

// overwrite gives the configuration file another text, if it is another. The caller
// holds d.fileMu.
func (d *Daemon) overwrite(was, text []byte) error {
	if bytes.Equal(was, text) {
		return nil
	}
	return apply.RewriteFile(d.o.File, text)
}
