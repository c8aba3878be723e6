package main

import (
	"fmt"
	"io"
	"os"

	"github.com/hitline/hitline/bench/replay"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// replayFiles are the files beside the report; nil where none was asked for.
type replayFiles struct {
	windows, hdr *os.File
}

// createFiles creates them before the replay, which may take hours, and not after
// it. The caller closes them.
func (f replayFlags) createFiles() (replayFiles, error) {
	var files replayFiles
	for _, want := range []struct {
		flag, path string
		file       **os.File
	}{{"--windows", f.windows, &files.windows}, {"--hdr", f.hdr, &files.hdr}} {
		if want.path == "" {
			continue
		}
		file, err := create(want.path, f.trace)
		if err == nil && files.windows != nil && sameRegular(file, files.windows) {
			file.Close() // nothing was written
			err = fmt.Errorf("%s is the file of --windows; name another", want.path)
		}
		if err != nil {
			files.close()
			return replayFiles{}, cli.Usagef("%s: %w", want.flag, err)
		}
		*want.file = file
	}
	return files, nil
}

// sameRegular reports whether two files are one, of which the second to write would
// write over the first.
func sameRegular(a, b *os.File) bool {
	one, errA := a.Stat()
	other, errB := b.Stat()
	return errA == nil && errB == nil && one.Mode().IsRegular() && os.SameFile(one, other)
}

// create opens the file at path, and makes it if there is none, unless it is the trace.
// What an earlier replay has left in it stays until there is something to write.
func create(path, trace string) (*os.File, error) {
	old, err := os.Stat(path)
	if err == nil {
		if in, err := os.Stat(trace); err == nil && os.SameFile(old, in) {
			return nil, fmt.Errorf("%s is the trace; name another file", path)
		}
	}
	return openFile(path)
}

// write writes the report's parts and closes the files.
func (s replayFiles) write(r replay.Report) error {
	for _, part := range []struct {
		file  *os.File
		write func(io.Writer) error
	}{{s.windows, r.WriteWindows}, {s.hdr, r.WriteHDR}} {
		if part.file == nil {
			continue
		}
		if err := writeFile(part.file, part.write); err != nil {
			return err
		}
	}
	return nil
}

// close closes what write has not.
func (s replayFiles) close() {
	for _, file := range []*os.File{s.windows, s.hdr} {
		if file != nil {
			file.Close() // of no consequence: what was written is closed by write
		}
	}
}

// openFile opens a file to write, and makes it if there is none. It does not empty it.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
}

// writeFile writes a file anew and closes it.
func writeFile(file *os.File, write func(io.Writer) error) error {
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = file.Truncate(0)
	}
	if err == nil {
		err = write(file)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", file.Name(), err)
	}
	return nil
}
