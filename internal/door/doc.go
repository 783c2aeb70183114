// Package door stands between a program and whoever reaches it. It gives connections their
// places, so that none has more than its share and nobody waits behind those who keep the
// program waiting; and a panic that one of them brings about ends no more than what it
// asked for.
package door
