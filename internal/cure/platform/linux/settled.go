package linux

import (
	"slices"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/platform"
)

// Settled returns the state without filters that redirect to a device which was not
// there. The kernel keeps such a filter when its device goes, and takes no new one: an
// undo can't make it again. Of a device that the state does not describe nothing is
// known, so its filters stay.
func (b *Backend) Settled(before platform.State) (platform.State, error) {
	s, err := decode(before)
	if err != nil {
		return nil, err
	}
	for i := range s.Devices {
		t := &s.Devices[i].Tree
		t.Filters = slices.DeleteFunc(slices.Clone(t.Filters), func(f tc.Filter) bool {
			to := redirectedTo(f)
			return to == goneDevice || slices.ContainsFunc(s.Devices, func(d tc.Device) bool { return d.Name == to && !d.Exists })
		})
	}
	return encode(s)
}

// goneDevice is what tc(8) prints for a device that has gone.
const goneDevice = "*"

// redirectedTo returns the device to which a filter redirects packets; "" if none.
func redirectedTo(f tc.Filter) string {
	at := slices.Index(f.Args, "mirred")
	if at < 0 {
		return ""
	}
	dev := slices.Index(f.Args[at:], "dev")
	if dev < 0 || at+dev+1 >= len(f.Args) {
		return ""
	}
	return f.Args[at+dev+1]
}
