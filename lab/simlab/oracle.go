package simlab

import (
	"unbloat/lab/scenario"
	"unbloat/lab/sim"
	"unbloat/unit"
)

// leastOracle is the least rate of shapers that know the line, as in the lab.
const leastOracle = 64 * unit.KbitPerSecond

// reshape gives the shapers a share of what the line carries now.
func (h *house) reshape(c scenario.Change, share float64) error {
	for d, r := range map[sim.Direction]unit.Rate{sim.Down: c.Down, sim.Up: c.Up} {
		if r > 0 || c.Exact {
			if err := h.net.SetRate(d, max(r.Scale(share), leastOracle)); err != nil {
				return err
			}
		}
	}
	return nil
}
