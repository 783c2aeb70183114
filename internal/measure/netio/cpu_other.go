//go:build !linux

package netio

func readCPU() ([]cpuTime, error) { return nil, unsupported("read the processors' load") }
