package protocol

// Find is find, for tests: the address of a --server value.
func (all Protocols) Find(server string) (Address, error) {
	_, a, err := all.find(server)
	return a, err
}

// Way is way, for tests: the host of a --ping value.
func (all Protocols) Way(ping string) (string, error) {
	_, host, err := all.way(ping)
	return host, err
}
