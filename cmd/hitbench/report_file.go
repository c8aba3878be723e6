package main

import (
	"fmt"
	"io"
	"os"

	"github.com/hitline/hitline/cmd/internal/cli"
)

// reportFile is where a part of a report is written beside it. The zero value is nowhere.
type reportFile struct {
	out  io.Writer
	file *os.File // out, if it is to be closed
}

// openHDR opens the file of --hdr, before the measuring, which may take hours. It is made if there
// is none, and what is in it stays until there is something to write. "-" is standard error. It
// must not be the trace, which may be empty. The caller closes it.
func (a *app) openHDR(path, trace string) (reportFile, error) {
	switch path {
	case "":
		return reportFile{}, nil
	case "-":
		return reportFile{out: a.stderr}, nil
	}
	if sameRegular(path, trace) {
		return reportFile{}, cli.Usagef("--hdr: %s is the trace; name another file", path)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return reportFile{}, cli.Usagef("--hdr: %w", err)
	}
	return reportFile{file, file}, nil
}

// sameRegular reports whether two paths are of one regular file, which the second to write would
// write over.
func sameRegular(a, b string) bool {
	one, errA := os.Stat(a)
	other, errB := os.Stat(b)
	return errA == nil && errB == nil && one.Mode().IsRegular() && os.SameFile(one, other)
}

// write writes the file anew and closes it.
func (f reportFile) write(write func(io.Writer) error) error {
	if f.file == nil {
		if f.out == nil {
			return nil
		}
		return write(f.out)
	}
	info, err := f.file.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = f.file.Truncate(0)
	}
	if err == nil {
		err = write(f.file)
	}
	if err == nil {
		err = f.file.Close()
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.file.Name(), err)
	}
	return nil
}

// close closes the file if it was not written, so an error has no meaning.
func (f reportFile) close() {
	if f.file != nil {
		_ = f.file.Close()
	}
}
