package openbsd

import (
	"strings"

	"unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
)

// Settled returns the state after pfctl(8) has loaded pf.conf: its queues, and those
// of our file if pf.conf includes it. Our line goes if that file is lost. If pf.conf includes files that were not read,
// or can't be read itself, it returns before: what it loads is not known.
func (b *Backend) Settled(before platform.State) (platform.State, error) {
	s, err := conf.Decode(before)
	if err != nil {
		return nil, err
	}
	own, live := s.Files.Text(PfConf), []string{}
	for _, f := range s.Files {
		wan, ok := strings.CutPrefix(f.Path, "/etc/pf.unbloat.")
		if !ok || strings.HasSuffix(f.Path, conf.Suffix) {
			continue
		}
		wan = strings.TrimSuffix(wan, ".conf")
		if without := strings.Replace(own, includeLine(wan), "", 1); without != own {
			if own = without; !f.Exists { // pf.conf can't be loaded with our line in it
				s.Files = s.Files.Put(PfConf, strings.Replace(s.Files.Text(PfConf), includeLine(wan), "", 1), "")
				continue
			}
			live = append(live, b.ours(s, wan)...)
		}
	}
	if len(includedWANs(own)) > 0 {
		return before, nil
	}
	if b.Altq {
		rs, err := pf.ParseALTQ(own)
		if err != nil {
			return before, nil
		}
		live = append(live, rs.Shown()...)
	} else {
		rs, err := pf.Parse(own)
		if err != nil {
			return before, nil
		}
		live = append(live, lines(rs.Queues)...)
	}
	s.Live, s.Known = live, nil
	return conf.Encode(s)
}
