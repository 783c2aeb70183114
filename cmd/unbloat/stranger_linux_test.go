package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/flows"
	"unbloat/testkit/await"
)

// TestStrangersLeases: the names of machines come from files of DHCP servers alone. One
// that another user made where anybody may make files is not believed, and a FIFO, which
// would hold up the page and the daemon's end, is not waited for.
func TestStrangersLeases(t *testing.T) {
	tmp := await.NobodysTmp(t)
	line := func(name, address string) string { return "0 02:00:00:00:00:01 " + address + " " + name + " *\n" }
	await.NobodyDoes(t, tmp, `printf %s "$1" >theirs; mkfifo fifo; ln -s "$2" link`, line("nobodys", "192.0.2.1"), filepath.Join(tmp, "roots"))
	served := filepath.Join(tmp, "server")
	if err := os.Mkdir(served, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{"roots": "192.0.2.2", "server/leases": "192.0.2.3"} {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(line("box", address)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// A DHCP server may own its directory and its file.
	for _, path := range []string{served, filepath.Join(served, "leases")} {
		if err := os.Chown(path, 7, 7); err != nil {
			t.Fatal(err)
		}
	}
	var files []string
	for _, name := range []string{"fifo", "theirs", "link", "nothing", "roots", "server/leases"} {
		files = append(files, filepath.Join(tmp, name))
	}
	read := make(chan flows.Leases, 1)
	go func() { read <- readLeases(files) }()
	select {
	case got := <-read:
		for address, want := range map[string]string{"192.0.2.1": "", "192.0.2.2": "box", "192.0.2.3": "box"} {
			if is := got[netip.MustParseAddr(address)].Name; is != want {
				t.Errorf("%s is called %q, want %q", address, is, want)
			}
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for somebody's FIFO")
	}
}

// TestStrangersHere: without a home no journal is kept or believed in the directory that
// happens to be the working one.
func TestStrangersHere(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_STATE_HOME", "here")
	f := routerFlags{targetFlags: targetFlags{router: "ssh://root@router"}, stateDir: defaultStateDir}
	if dir, err := f.journalDir(&platform.Driver{}); err == nil {
		t.Errorf("the journal is kept in %s", dir)
	}
	t.Setenv("HOME", "/home/us")
	if dir, err := f.journalDir(&platform.Driver{}); err != nil || dir != "/home/us/.local/state/unbloat/ssh___root_at_router" {
		t.Errorf("the journal is kept in %s (%v)", dir, err)
	}
}
