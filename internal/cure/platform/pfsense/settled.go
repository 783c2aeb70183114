package pfsense

import (
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
	"unbloat/internal/cure/platform/conf"
)

// Settled returns the state after pfSense has made its rules of config.xml again: of
// our limiters and rules it runs those that are in there, and nothing else.
func (b *Backend) Settled(before platform.State) (platform.State, error) {
	s, err := conf.Decode(before)
	if err != nil {
		return nil, err
	}
	if !s.Files.Get(Config).Exists { // a wanted state, whose elements are its facts
		return before, nil
	}
	root, err := bsd.ParseConfig(s.Files.Text(Config))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", Config, err)
	}
	section := &bsd.ConfigNode{Name: "dnshaper"}
	for _, q := range root.Child("dnshaper").All("queue") {
		if strings.HasPrefix(q.Value("name"), ourLimiter) {
			section.Children = append(section.Children, q)
		}
	}
	s.Live, s.Facts = []string{}, items(root)
	if len(section.Children) > 0 {
		ls, err := dummynet.ParseLimiters(section.String())
		if err != nil {
			return nil, fmt.Errorf("read the limiters of %s: %w", Config, err)
		}
		lines, kernel, err := generated(section, ls)
		if err != nil {
			return nil, err
		}
		s.Live, s.Facts = append(s.Live, lines...), append(s.Facts, kernel...)
	}
	for _, r := range root.Child("filter").All("rule") {
		name, own := strings.CutPrefix(r.Value("descr"), ourRule)
		if !own || r.Child("disabled") != nil {
			continue
		}
		if l := ruleLine(dummynet.LimiterRule{Name: name, Direction: r.Value("direction"), In: r.Value("dnpipe"), Out: r.Value("pdnpipe")}); !slices.Contains(s.Live, l) {
			s.Live = append(s.Live, l)
		}
	}
	return conf.Encode(s)
}
