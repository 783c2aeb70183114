package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/lab/household"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// AutorateEnv says in which folder cake-autorate is, which is no part of this
// project.
const AutorateEnv = "CAKE_AUTORATE"

const autorateProgram = "cake-autorate.sh"

// Reflectors are addresses of the server that answer pings, of three networks: what
// follows a line takes them for those of three operators.
func Reflectors() []string {
	return []string{"192.0.2.1", "192.0.2.2", "198.51.100.1", "198.51.100.2", "203.0.113.1", "203.0.113.2"}
}

// reflectorNets are the networks of Reflectors.
func reflectorNets() []string { return []string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"} }

// FindAutorate returns the folder of cake-autorate. The error is a *MissingError.
func FindAutorate() (string, error) {
	dir := os.Getenv(AutorateEnv)
	if dir == "" {
		return "", &MissingError{"cake-autorate", "set " + AutorateEnv + "=DIR to the folder that has " + autorateProgram}
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, autorateProgram))
	}
	if err != nil {
		return "", &MissingError{"cake-autorate", fmt.Sprintf("%s: %v", AutorateEnv, err)}
	}
	if _, err := exec.LookPath("fping"); err != nil {
		return "", &MissingError{"fping, which cake-autorate uses,", "install the package fping (apt-get install fping)"}
	}
	return dir, nil
}

// Runnable returns the cases that can be run here, and why the others can't: a
// *MissingError for each.
func Runnable(cases []scenario.Case) (can []scenario.Case, why []error) {
	for _, c := range cases {
		if c.Router.Mode == scenario.ModeAutorate {
			if _, err := FindAutorate(); err != nil {
				why = append(why, fmt.Errorf("case %s: %w", c.Name, err))
				continue
			}
		}
		can = append(can, c)
	}
	return can, why
}

// outageBelow is what a line carries less of in an outage: not the sound of a call, and
// in a trace one packet in 200 ms.
const outageBelow = 64 * unit.KbitPerSecond

// Outages are the times in which a line carried nearly nothing up, and down: less than
// 64 kbit/s. The measuring began at began.
func Outages(l scenario.Line, began unit.Instant) (up, down []household.Freeze) {
	from := []scenario.Change{{Down: l.Down, Up: l.Up}}
	for i, c := range append(from, l.Vary...) {
		to := unit.Instant(math.MaxInt64)
		if i < len(l.Vary) {
			to = began.Add(l.Vary[i].At)
		}
		for _, way := range []struct {
			rate unit.Rate
			of   *[]household.Freeze
		}{{c.Up, &up}, {c.Down, &down}} {
			at := began.Add(c.At)
			switch n := len(*way.of); {
			case way.rate == 0 && !c.Exact: // as before
				if n > 0 && (*way.of)[n-1].To == at {
					(*way.of)[n-1].To = to
				}
			case way.rate < outageBelow:
				*way.of = append(*way.of, household.Freeze{From: at, To: to})
			}
		}
	}
	return up, down
}

// ShaperRates are the rates that the router's shapers had while a case was measured.
type ShaperRates struct {
	Down ShaperRate `json:"down"`
	Up   ShaperRate `json:"up"`
}

// ShaperRate is the rate of one shaper, in bit/s.
type ShaperRate struct {
	Least float64 `json:"least_bps"`
	Mean  float64 `json:"mean_bps"`
	Most  float64 `json:"most_bps"`
}

// shapersEvery is how often the shapers are looked at.
const shapersEvery = 100 * time.Millisecond

// WatchShapers is a process on the router that looks at the shapers of its WAN until
// in ends. It writes a ShaperRates as JSON.
func WatchShapers(ctx context.Context, wan string, in io.Reader, out io.Writer) error {
	links, err := netio.OpenLinkCounter()
	if err != nil {
		return err
	}
	defer links.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	names := []string{plan.IFBName(wan), wan}
	counts := make([]netio.LinkCounts, len(names))
	var rates [2]ShaperRate
	n := 0.0
	for {
		if err := links.Read(names, counts); err != nil {
			return err
		}
		for i, c := range counts {
			r, is := &rates[i], float64(c.Queue.Rate)
			if n == 0 {
				r.Least = is
			}
			r.Least, r.Most, r.Mean = min(r.Least, is), max(r.Most, is), (r.Mean*n+is)/(n+1)
		}
		n++
		if phases.Sleep(ctx, shapersEvery) != nil {
			return json.NewEncoder(out).Encode(ShaperRates{Down: rates[0], Up: rates[1]})
		}
	}
}
