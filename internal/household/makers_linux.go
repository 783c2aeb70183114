package household

import "unbloat/internal/scenario"

// newMaker returns what makes a load, nil for a kind that it does not know.
func newMaker(t Task) maker {
	switch t.Load.Kind {
	case scenario.Upload, scenario.Download, scenario.VoIP, scenario.Game, scenario.UDP:
		return &native{task: t}
	case scenario.Torrent:
		return &torrent{task: t}
	}
	return nil
}
