// Package all lists the platforms. A new one is a directory of its own and one
// line here.
package all

import (
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/clearos"
	"unbloat/internal/cure/platform/freebsd"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/internal/cure/platform/pfsense"
)

// Drivers returns the drivers of all platforms, in the order in which they are
// listed to people.
func Drivers() platform.Drivers {
	return platform.Drivers{
		linux.Driver(), openwrt.Driver(), opnsense.Driver(), freebsd.Driver(), pfsense.Driver(),
		openbsd.Driver(), openbsd.DriverAltq(), clearos.Driver(),
	}
}

// Default is the driver of a router of which nothing is known.
func Default() *platform.Driver { return Drivers()[0] }

// Names returns the platforms' names.
func Names() []string {
	return Drivers().Names()
}

// Find returns the driver of a platform. The error lists the names that there are.
func Find(name string) (*platform.Driver, error) {
	return Drivers().Find(name)
}

// Language returns the language of a platform, as plan.Parse asks for it.
func Language(name string) (*plan.Language, error) {
	d, err := Find(name)
	if err != nil {
		return nil, err
	}
	return d.Language, nil
}

// Text writes a plan in its platform's own language, as a person pastes it.
func Text(p plan.Plan) (string, error) {
	d, err := Find(p.Platform)
	if err != nil {
		return "", err
	}
	return d.Text(p)
}

// Assume returns what a current router of a platform has, for planning without
// access to one.
func Assume(name, wan, lan string) (plan.Capabilities, error) {
	l, err := Language(name)
	if err != nil {
		return plan.Capabilities{}, err
	}
	return l.Assume(wan, lan), nil
}

// Must returns the language of a platform that is known to exist.
func Must(name string) *plan.Language {
	l, err := Language(name)
	if err != nil {
		panic(err)
	}
	return l
}
