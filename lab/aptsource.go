package lab

import (
	"regexp"
	"strings"
)

var (
	suitesLine = regexp.MustCompile(`(?m)^Suites:.*$`)
	oneLine    = regexp.MustCompile(`^deb\s+(\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+main\b`)
	uriLine    = regexp.MustCompile(`(?m)^URIs:\s*(\S+)`)
	signedLine = regexp.MustCompile(`(?m)^Signed-By:.*$`)
)

// backportsSuite is the suite that carries linux-source-7.
const backportsSuite = "trixie-backports"

// archiveKeyring verifies Debian's suites; bookworm's knows trixie's keys too.
const archiveKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// backports turns the text of an apt source file (deb822 or one-line) into a
// deb822 source of the backports suite on the same mirror. ok is false if the
// file names no main Debian archive.
func backports(text string) (source string, ok bool) {
	for _, stanza := range strings.Split(strings.ReplaceAll(text, "\r", ""), "\n\n") {
		uri := uriLine.FindStringSubmatch(stanza)
		if uri == nil || !debianArchive(uri[1]) || !suitesLine.MatchString(stanza) {
			continue
		}
		if !signedLine.MatchString(stanza) {
			stanza = strings.TrimRight(stanza, "\n") + "\nSigned-By: " + archiveKeyring
		}
		return suitesLine.ReplaceAllString(stanza, "Suites: "+backportsSuite) + "\n", true
	}
	for _, line := range strings.Split(text, "\n") {
		if m := oneLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil && debianArchive(m[2]) {
			return "Types: deb\nURIs: " + m[2] + "\nSuites: " + backportsSuite + "\nComponents: main\nSigned-By: " + archiveKeyring + "\n", true
		}
	}
	return "", false
}

// debianArchive separates the main archive from security updates and other archives.
func debianArchive(uri string) bool {
	path := strings.TrimRight(uri, "/")
	return strings.HasSuffix(path, "/debian") || strings.Contains(path, "/debian/")
}
