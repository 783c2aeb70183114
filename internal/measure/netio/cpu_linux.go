package netio

import (
	"fmt"
	"os"
)

func readCPU() ([]cpuTime, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, fmt.Errorf("read the processors' load: %w", err)
	}
	t, err := parseStat(b)
	if err != nil {
		return nil, fmt.Errorf("read the processors' load from /proc/stat: %w", err)
	}
	return t, nil
}
