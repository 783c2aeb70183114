// Package iperf3 is the wire format of iperf3.
package iperf3

// Port is iperf3's TCP port.
const Port = 5201
