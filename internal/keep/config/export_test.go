package config

import "reflect"

// Bare returns a configuration without where its keys stood.
func Bare(c Config) Config {
	c.WANs = append([]WAN(nil), c.WANs...)
	for i := range c.WANs {
		c.WANs[i].lines, c.WANs[i].syntax = nil, ""
	}
	c.top, c.syntax, c.Schedule = nil, "", append([]Entry(nil), c.Schedule...)
	for i := range c.Schedule {
		c.Schedule[i].line = 0
	}
	return c
}

// Layout returns the keys of the tables that a file is decoded into; "" is the top level.
func Layout() map[string][]string {
	out := map[string][]string{"": options(reflect.TypeFor[file](), "")}
	for i := range reflect.TypeFor[file]().NumField() {
		if f := reflect.TypeFor[file]().Field(i); isTable(f.Type) {
			out[f.Tag.Get("toml")] = options(f.Type.Elem(), "")
		}
	}
	return out
}
