// Actor is each of a fake router's programs, by the name that it is called by: it hands its
// arguments and its input to the test that plays the router, and gives the answer. It is small,
// since thousands run; a test's own binary takes several times as long to start.
package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
)

func main() {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	c, err := net.Dial("unix", os.Getenv("UNBLOAT_TEST_PLATFORM"))
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if err := json.NewEncoder(c).Encode(struct {
		Argv  []string
		Stdin []byte
	}{append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...), in}); err != nil {
		panic(err)
	}
	var a struct {
		Out, Err []byte
		Failed   bool
	}
	if err := json.NewDecoder(c).Decode(&a); err != nil {
		panic(err)
	}
	os.Stdout.Write(a.Out)
	os.Stderr.Write(a.Err)
	if a.Failed {
		os.Exit(1)
	}
}
