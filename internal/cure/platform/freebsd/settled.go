package freebsd

import (
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
)

// Settled returns the state after our rules file was loaded: of our objects those
// that it makes, and nothing else.
func (b *Backend) Settled(before platform.State) (platform.State, error) {
	s, err := conf.Decode(before)
	if err != nil {
		return nil, err
	}
	s.Live, s.Known = append(foreign(s), ours(s).ShownLines()...), nil
	return conf.Encode(s)
}
