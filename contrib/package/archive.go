package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A file is one of an archive or a package.
type file struct {
	name string // slashes, relative
	mode fs.FileMode
	text []byte
}

// describe has this machine's programs write their manual pages and completions,
// which are the same for every target. The laboratory knows more of its commands.
func (r *release) describe(ctx context.Context) error {
	program, err := r.build(ctx, r.host, "unbloat", r.program)
	if err != nil {
		return err
	}
	lab, err := r.build(ctx, r.host, "unbloat-lab", r.lab)
	if err != nil {
		return err
	}
	for _, p := range []string{program, lab} {
		if err := r.run(p, "manual", filepath.Join(r.work, "man")); err != nil {
			return err
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := r.output(ctx, program, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.work, shell), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// shared are the files below /usr or another prefix that say how the program is
// used. zsh is the directory of zsh's functions there.
func (r *release) shared(zsh string, compressed bool) ([]file, error) {
	var out []file
	for shell, name := range map[string]string{"bash": "share/bash-completion/completions/unbloat", "zsh": zsh + "/_unbloat", "fish": "share/fish/vendor_completions.d/unbloat.fish"} {
		text, err := os.ReadFile(filepath.Join(r.work, shell))
		if err != nil {
			return nil, err
		}
		out = append(out, file{name, 0o644, text})
	}
	pages, err := os.ReadDir(filepath.Join(r.work, "man"))
	if err != nil {
		return nil, err
	}
	for _, p := range pages {
		text, err := os.ReadFile(filepath.Join(r.work, "man", p.Name()))
		if err != nil {
			return nil, err
		}
		name := "share/man/man1/" + p.Name()
		if compressed {
			name, text = name+".gz", gzipped(text, time.Time{})
		}
		out = append(out, file{name, 0o644, text})
	}
	return out, nil
}

// tarball writes the programs with all that belongs to them: below a directory of the
// archive's name, as it is laid out below a prefix such as /usr/local. Windows
// gets a zip.
func (r *release) tarball(ctx context.Context, t target, p programs) error {
	name := fmt.Sprintf("unbloat-%s-%s-%s", r.plain(), t.os, t.arch)
	bom, notices, err := r.materials(ctx, t, p.all()...)
	if err != nil {
		return err
	}
	if err := r.write(name+".cdx.json", bom); err != nil {
		return err
	}
	var files []file
	for i, program := range p.all() {
		binary, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		files = append(files, file{[]string{"bin/unbloat", "bin/unbloat-lab"}[i], 0o755, binary})
	}
	files = append(files, file{"share/doc/unbloat/THIRD-PARTY-NOTICES", 0o644, notices})
	for _, doc := range []string{"LICENSE", "CHANGELOG.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			return err
		}
		files = append(files, file{"share/doc/unbloat/" + doc, 0o644, text})
	}
	if t.os == "windows" {
		files[0].name = "unbloat.exe"
		for i := range files {
			files[i].name = path.Base(files[i].name)
		}
		return r.write(name+".zip", zipped(name, files, r.date))
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		return err
	}
	for _, page := range pages { // help names them
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		files = append(files, file{"share/doc/unbloat/" + filepath.ToSlash(page), 0o644, text})
	}
	shared, err := r.shared("share/zsh/site-functions", false)
	if err != nil {
		return err
	}
	packed, err := tarred(name, append(files, shared...), r.date)
	if err != nil {
		return err
	}
	return r.write(name+".tar.gz", gzipped(packed, time.Time{}))
}

// write writes a file of what is made.
func (r *release) write(name string, text []byte) error {
	f := filepath.Join(r.out, name)
	r.written = append(r.written, f)
	return os.WriteFile(f, text, 0o644)
}

// tarred puts files into a tar archive below a directory, in the order of their
// names, with the directories that they need.
func tarred(root string, files []file, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var failed error // a name too long for the format
	entry := func(h tar.Header, text []byte) {
		h.ModTime, h.Uname, h.Gname, h.Format = date, "root", "root", tar.FormatUSTAR
		failed = errors.Join(failed, w.WriteHeader(&h))
		_, _ = w.Write(text) // to memory
	}
	made := map[string]bool{}
	for _, f := range sorted(files) {
		name := path.Join(root, f.name)
		for i := range name {
			if name[i] == '/' && !made[name[:i]] {
				made[name[:i]] = true
				entry(tar.Header{Typeflag: tar.TypeDir, Name: name[:i] + "/", Mode: 0o755}, nil)
			}
		}
		entry(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode), Size: int64(len(f.text))}, f.text)
	}
	_ = w.Close()
	return b.Bytes(), failed
}

// zipped puts files into a zip archive below a directory.
func zipped(root string, files []file, date time.Time) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range sorted(files) {
		h := &zip.FileHeader{Name: path.Join(root, f.name), Method: zip.Deflate, Modified: date}
		h.SetMode(f.mode)
		to, err := w.CreateHeader(h)
		if err != nil {
			panic(err) // to memory
		}
		_, _ = to.Write(f.text)
	}
	_ = w.Close()
	return b.Bytes()
}

// gzipped compresses without a name.
func gzipped(text []byte, date time.Time) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is Go's own
	}
	w.ModTime = date
	_, _ = w.Write(text) // to memory
	_ = w.Close()
	return b.Bytes()
}

// lay writes files below a directory.
func lay(dir string, files []file) error {
	for _, f := range files {
		to := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, f.text, f.mode); err != nil {
			return err
		}
	}
	return nil
}

// copyScript puts install.sh beside the tarballs that it installs.
func (r *release) copyScript() error {
	text, err := os.ReadFile("contrib/package/install.sh")
	if err != nil {
		return err
	}
	if err := r.write("install.sh", text); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(r.out, "install.sh"), 0o755)
}

// sum writes SHA256SUMS of what was made, and signs it.
func (r *release) sum() error {
	var b strings.Builder
	for _, f := range r.written {
		s, err := sumOf(f)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", s, filepath.Base(f))
	}
	if b.Len() == 0 {
		return nil
	}
	if err := r.write("SHA256SUMS", []byte(b.String())); err != nil || r.key == "" {
		return err
	}
	return r.sign(filepath.Join(r.out, "SHA256SUMS"))
}

// sign signs a file. minisign asks on the terminal for the key's password, if it
// has one.
func (r *release) sign(name string) error {
	sig := name + ".minisig"
	c := exec.Command("minisign", "-S", "-s", r.key, "-m", name, "-x", sig, "-c", "signature of unbloat "+r.version, "-t", "unbloat "+r.version)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("sign %s with %s: minisign: %w", name, r.key, err)
	}
	r.written = append(r.written, sig)
	return nil
}

// copied copies a file.
func copied(to, from string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// output is what a command prints.
func (r *release) output(ctx context.Context, argv ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var errs strings.Builder
	c.Env, c.Stderr = environment(), &errs
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, errs.String())
	}
	return out, nil
}

func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
}
