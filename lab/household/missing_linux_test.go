package household

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/lab/scenario"
)

// A load whose program is missing names the package to install, and runs
// nothing else instead.
func TestMissingPrograms(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	const ip = "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'libtorrent'\" >&2\nexit 1\n" // stands in for python, without the module
	if err := os.WriteFile(filepath.Join(dir, "ip"), []byte(ip), 0o700); err != nil {
		t.Fatal(err)
	}
	for kind, brings := range map[string]string{
		scenario.Torrent: "python3-libtorrent: exit status 1: ModuleNotFoundError", scenario.IMAP: "dovecot-imapd", scenario.SSH: "openssh", scenario.DNS: "dnsmasq", scenario.Web: "dnsmasq", scenario.Video: "dnsmasq",
	} {
		m := newMaker(Task{Load: scenario.Load{Kind: kind, Flows: 1, Peers: 1, Messages: 1}})
		err := m.prepare(t.Context())
		if err == nil || !strings.Contains(err.Error(), "apt-get install") || !strings.Contains(err.Error(), brings) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
