package nft_test

import (
	"testing"

	"unbloat/internal/cure/lang/nft"
)

// TestConfigDir finds dnsmasq's directory from its command line and
// configuration, as Debian, OpenWrt and NetworkManager start it.
func TestConfigDir(t *testing.T) {
	for _, x := range []struct {
		args         []string
		config, want string
		file         string
	}{
		{[]string{"/usr/sbin/dnsmasq", "-x", "/run/dnsmasq/dnsmasq.pid", "-u", "dnsmasq", "-7", "/etc/dnsmasq.d,.dpkg-dist,.dpkg-old,.dpkg-new", "--local-service"}, "", "/etc/dnsmasq.d", "/etc/dnsmasq.conf"},
		{[]string{"/usr/sbin/dnsmasq", "-C", "/var/etc/dnsmasq.conf.cfg01411c", "-k"}, "# auto\nport=53\nconf-dir=/tmp/dnsmasq.d\n", "/tmp/dnsmasq.d", "/var/etc/dnsmasq.conf.cfg01411c"},
		{[]string{"dnsmasq", "--conf-file=/dev/null", "--conf-dir=/etc/NetworkManager/dnsmasq.d"}, "", "/etc/NetworkManager/dnsmasq.d", "/dev/null"},
		{[]string{"dnsmasq"}, "conf-dir=/a/,*.conf\n", "/a", "/etc/dnsmasq.conf"},
		{[]string{"dnsmasq"}, "conf-dir=/a,*.cfg\nconf-dir=/b\n", "/b", "/etc/dnsmasq.conf"},
		{[]string{"dnsmasq"}, "conf-dir=/a,.conf\n", "", "/etc/dnsmasq.conf"},
		{[]string{"dnsmasq", "-C/x"}, "#conf-dir=/etc/dnsmasq.d\n", "", "/x"},
	} {
		if got := nft.ConfigDir(x.args, x.config); got != x.want {
			t.Errorf("%q with %q: directory %q, not %q", x.args, x.config, got, x.want)
		}
		if got := nft.ConfigFile(x.args); got != x.file {
			t.Errorf("%q: file %q, not %q", x.args, got, x.file)
		}
	}
	if nft.CanFill("Compile time options: IPv6 no-conntrack ipset no-nftset auth") || !nft.CanFill("Compile time options: IPv6 conntrack ipset nftset auth") {
		t.Error("what dnsmasq was compiled with is misread")
	}
}
