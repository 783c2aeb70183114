package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// A bom is a bill of materials as CycloneDX 1.6 writes it, as far as it is used.
type bom struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []licence  `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type licence struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// plotter is what the web page draws with. Its code is in the page that is built
// from it, where Go does not see it.
const plotter = "uplot"

// plotterNotice says whose it is and under which licence.
const plotterNotice = "Copyright (c) 2022 Leon Sorokin. The MIT License, in the words in which others of this list have it."

// materials returns the bill of materials of programs that come together, and the
// notices of those whose code is in them. The first is the one that the bill is called by.
func (r *release) materials(ctx context.Context, t target, programs ...string) (list, notices []byte, err error) {
	info, err := together(programs)
	if err != nil {
		return nil, nil, err
	}
	sum, err := sumOf(programs[0])
	if err != nil {
		return nil, nil, err
	}
	page, err := plotterVersion()
	if err != nil {
		return nil, nil, err
	}
	b := newBOM(info, r.plain(), t, sum, page, r.date)
	if list, err = json.MarshalIndent(b, "", "  "); err != nil {
		return nil, nil, err
	}
	notices, err = r.notices(ctx, info, page)
	return append(list, '\n'), notices, err
}

// together returns what Go noted in programs: of the first, with the modules of all.
func together(programs []string) (*debug.BuildInfo, error) {
	var all *debug.BuildInfo
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("read what %s was built from: %w", program, err)
		}
		if all == nil {
			all = info
			continue
		}
		for _, m := range info.Deps {
			if !slices.ContainsFunc(all.Deps, func(a *debug.Module) bool { return a.Path == m.Path }) {
				all.Deps = append(all.Deps, m)
			}
		}
	}
	slices.SortFunc(all.Deps, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	return all, nil
}

// newBOM lists what Go noted in a program, the toolchain's library, and what the
// web page has.
func newBOM(info *debug.BuildInfo, version string, t target, sum, page string, date time.Time) bom {
	root := component{Type: "application", Ref: "unbloat@" + version, Name: "unbloat", Version: version, Hashes: []hash{{"SHA-256", sum}},
		Licenses: make([]licence, 1), Properties: []property{{"unbloat:target", t.String()}, {"unbloat:go", info.GoVersion}}}
	root.Licenses[0].License.ID = "Apache-2.0"
	b := bom{Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{date.Format(time.RFC3339), root}}
	add := func(purl, name, version string) {
		b.Components = append(b.Components, component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl})
	}
	std := strings.TrimPrefix(info.GoVersion, "go")
	add("pkg:golang/std@"+std, "std", std)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add("pkg:golang/"+strings.ToLower(m.Path)+"@"+m.Version, m.Path, m.Version)
	}
	add("pkg:npm/"+plotter+"@"+page, plotter, page)
	slices.SortFunc(b.Components, func(x, y component) int { return cmp.Compare(x.Ref, y.Ref) })
	of := dependency{Ref: root.Ref}
	for _, c := range b.Components {
		of.DependsOn = append(of.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{of}
	for _, c := range b.Components {
		b.Dependencies = append(b.Dependencies, dependency{Ref: c.Ref})
	}
	h := sha256.Sum256([]byte(version + "\n" + t.String() + "\n" + sum))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // a UUID of version 8 (RFC 9562), whose bits are ours
	b.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
	return b
}

// plotterVersion is what the web page was built with.
func plotterVersion() (string, error) {
	const lock = "web/package-lock.json"
	text, err := os.ReadFile(lock)
	if err != nil {
		return "", err
	}
	var l struct {
		Packages map[string]struct {
			Version string `json:"version"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return "", fmt.Errorf("%s: %w", lock, err)
	}
	v := l.Packages["node_modules/"+plotter].Version
	if v == "" {
		return "", fmt.Errorf("%s: it has no %s, which the page draws with", lock, plotter)
	}
	return v, nil
}

// notices collects the licences of all whose code is in the program, from the
// modules themselves.
func (r *release) notices(ctx context.Context, info *debug.BuildInfo, page string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "unbloat has code of others in it. These are their notices.\n")
	section := func(name, dir string) error {
		files, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("read the licence of %s: %w", name, err)
		}
		found := false
		for _, f := range files {
			if !f.Type().IsRegular() || !regexp.MustCompile(`(?i)^(un)?licen[sc]e|^copying|^notice|^patents`).MatchString(f.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return err
			}
			found = true
			fmt.Fprintf(&b, "\n======== %s: %s\n\n%s\n", name, f.Name(), bytes.TrimSpace(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))))
		}
		if !found {
			return fmt.Errorf("%s: %s has no licence", name, dir)
		}
		return nil
	}
	root, err := r.output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	if err := section("Go "+info.GoVersion, strings.TrimSpace(string(root))); err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, "\n======== uPlot %s, in the web page\n\n%s\n", page, plotterNotice)
	argv := []string{"go", "list", "-m", "-f", "{{.Path}} {{.Dir}}"}
	for _, m := range info.Deps {
		argv = append(argv, m.Path)
	}
	list, err := r.output(ctx, argv...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(list)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if dir == "" {
			return nil, fmt.Errorf("read the licence of %s: the module is not downloaded; run go mod download", path)
		}
		if err := section(path, dir); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// sumOf is a file's SHA-256, hexadecimal.
func sumOf(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
