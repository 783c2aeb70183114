//go:build unix

package daemon

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"unbloat/internal/keep/config"
)

// TestConfigurationStaysWhoseItIs: rates that are kept go into the file that the
// configuration is a link to. The link stays, and the file's owner and mode.
func TestConfigurationStaysWhoseItIs(t *testing.T) {
	elsewhere, dir := t.TempDir(), t.TempDir()
	file, link := filepath.Join(elsewhere, "router.toml"), filepath.Join(dir, "unbloat.toml")
	if err := os.WriteFile(file, []byte(oneWAN), 0o600); err != nil {
		t.Fatal(err)
	}
	owner, group := os.Getuid(), os.Getgid()
	if owner == 0 { // only root may give files away
		owner, group = 4711, 4712
	}
	if err := os.Chown(file, owner, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o664); err != nil { // whatever the mask is
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	d := &Daemon{o: Options{File: link}}
	c, err := config.Parse(link, []byte(oneWAN))
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.rewrite(c.WANs[0], []config.Setting{{Key: "down", Value: "30 Mbit/s"}})
	if err != nil || w.Down != 30*mbit {
		t.Fatalf("%+v: %v", w, err)
	}
	if to, err := os.Readlink(link); err != nil || to != file {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	is, err := os.Lstat(file)
	if err != nil {
		t.Fatal(err)
	}
	at := is.Sys().(*syscall.Stat_t)
	if is.Mode() != 0o664 || int(at.Uid) != owner || int(at.Gid) != group {
		t.Errorf("it is %v and of %d:%d, was 0664 and of %d:%d", is.Mode(), at.Uid, at.Gid, owner, group)
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) != 1 {
		t.Errorf("beside it there is %v: %v", left, err)
	}
}
