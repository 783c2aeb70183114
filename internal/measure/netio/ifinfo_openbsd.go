package netio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ifinfo is this system's layout, as its own headers have it: a layout that differs
// does not compile.
func ifinfo() ifinfoLayout {
	var m unix.IfMsghdr
	const data = unsafe.Offsetof(m.Data)
	_ = [1]struct{}{}[unsafe.Offsetof(m.Index)-6]
	_ = [1]struct{}{}[data+unsafe.Offsetof(m.Data.Ipackets)-48]
	_ = [1]struct{}{}[data+unsafe.Offsetof(m.Data.Opackets)-64]
	_ = [1]struct{}{}[data+unsafe.Offsetof(m.Data.Ibytes)-88]
	_ = [1]struct{}{}[data+unsafe.Offsetof(m.Data.Obytes)-96]
	return ifinfoOpenBSD()
}
