package config

// TopKeys and WANKeys are the keys of a configuration.
func TopKeys() []string { return topKeys() }
func WANKeys() []string { return wanKeys() }

// ScheduleKeys are those of an entry of the schedule.
func ScheduleKeys() []string { return scheduleKeys() }

// Bare returns a configuration without where its keys stood.
func Bare(c Config) Config {
	c.WANs = append([]WAN(nil), c.WANs...)
	for i := range c.WANs {
		c.WANs[i].lines, c.WANs[i].syntax = nil, ""
	}
	c.top, c.Schedule = nil, append([]Entry(nil), c.Schedule...)
	for i := range c.Schedule {
		c.Schedule[i].line = 0
	}
	return c
}

// UIKeys are those of the page.
func UIKeys() []string { return uiKeys() }
