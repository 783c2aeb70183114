package netio

// ifinfo is this system's layout.
func ifinfo() ifinfoLayout { return ifinfoFreeBSD() }
