package daemon

// An Event is something that changed in this machine's network.
type Event struct {
	Replaced string   // an interface that came, went, or is another one under the same name; "": none
	Rerouted []string // interfaces that the default route has left or come to, or with a new address or gateway; nil: none
	By       string   // the program that did it, as far as that is known
	Port     uint32   // netlink port of who changed traffic control; 0: not known, or something else changed
	Trouble  error    // why nothing was heard for a while; nil: all was
}
