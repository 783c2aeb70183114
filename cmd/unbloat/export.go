//go:build !router

package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
	"unbloat/internal/show/store"
)

func newExportCommand() *cobra.Command {
	var f storeFlag
	var output string
	c := &cobra.Command{
		Use:     "export [ID…] -o FILE",
		GroupID: "main",
		Short:   "Write kept results to a file, for `unbloat import` elsewhere",
		Long: `Writes the results with these IDs, all of them if none is given, to a file of
JSON: a line for each, with the conditions it was taken under. It is gzipped if
the name ends in .gz, and on standard output.`,
		Example: `  unbloat export -o results.jsonl.gz
  unbloat export 3fa9c1 88b2 -o - | ssh router unbloat import -`,
		RunE: func(c *cobra.Command, ids []string) error {
			if output == "" {
				return cli.UsageError("export: -o FILE is missing, such as -o results.jsonl.gz; - is standard output")
			}
			return f.export(c, ids, output)
		},
	}
	f.register(c.Flags())
	c.ValidArgsFunction = f.complete
	c.Flags().StringVarP(&output, "output", "o", "", "write to `FILE`, a .jsonl.gz or .jsonl; - is standard output")
	return c
}

func (f *storeFlag) export(c *cobra.Command, ids []string, output string) error {
	n := 0
	export := func(w io.Writer) error {
		return f.with(c.Context(), false, func(s *store.Store) (err error) {
			if s == nil {
				return cli.Exit(cli.Precondition, errors.New("export: no results were kept yet; `unbloat test` keeps its own"))
			}
			n, err = s.Export(c.Context(), w, ids)
			return err
		})
	}
	if output == "-" {
		return export(cli.Raw(c.OutOrStdout()))
	}
	write := export
	if !strings.HasSuffix(output, ".gz") { // the file name says: not compressed
		write = func(w io.Writer) error { return unpacked(w, export) }
	}
	if err := writeStream(output, write); err != nil {
		return err
	}
	what := "results"
	if n == 1 {
		what = "result"
	}
	fmt.Fprintf(c.OutOrStdout(), "%d %s written to %s.\n", n, what, output)
	return nil
}

// unpacked writes an export uncompressed.
func unpacked(w io.Writer, export func(io.Writer) error) error {
	r, packed := io.Pipe()
	go func() { packed.CloseWithError(export(packed)) }() // ends at the latest when r is closed
	z, err := gzip.NewReader(r)
	if err == nil {
		_, err = io.Copy(w, z)
	}
	r.CloseWithError(err)
	return err
}

// writeStream writes an export to a file, completely or not at all. It streams,
// since a million results do not fit into memory.
func writeStream(path string, write func(io.Writer) error) error {
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("export: write %s: %w", path, err)
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".unbloat-*")
	if err != nil {
		return fmt.Errorf("export: write %s: %w", path, err)
	}
	defer os.Remove(f.Name()) // no effect after the rename
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	err = f.Close()
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("export: write %s: %w; nothing was written", path, err)
	}
	return nil
}

func newImportCommand() *cobra.Command {
	var f storeFlag
	c := &cobra.Command{
		Use:     "import [sqm|cake-autorate|qosmate] FILE",
		GroupID: "main",
		Short:   "Keep the results of an export, or make a configuration from that of another program",
		Long: `With a FILE alone, keeps the results of an export; existing ones are not changed.

` + comeOverLong,
		Example: "  unbloat import results.jsonl.gz\n" + comeOverExample,
		Args:    comeOverArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == comeOverWords {
				return comeOver(c, args)
			}
			return f.importFrom(c, args[0])
		},
	}
	f.register(c.Flags())
	return c
}

func (f *storeFlag) importFrom(c *cobra.Command, name string) error {
	var in io.Reader = c.InOrStdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return cli.UsageError("import: %w", err)
		}
		defer file.Close()
		in = file
	}
	var read, added int
	err := f.with(c.Context(), true, func(s *store.Store) (err error) {
		read, added, err = s.Import(c.Context(), in)
		return err
	})
	var line *store.LineError
	if errors.As(err, &line) {
		return cli.UsageError("import %s: %w; nothing of it was kept", name, err)
	}
	if err != nil {
		return storeError(fmt.Errorf("import %s: %w", name, err))
	}
	fmt.Fprintf(c.OutOrStdout(), "%d results read, %d of them new.\n", read, added)
	return nil
}
