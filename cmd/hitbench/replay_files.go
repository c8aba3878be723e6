package main

import (
	"fmt"
	"io"
	"os"

	"github.com/hitline/hitline/bench"
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
		if err != nil {
			files.close()
			return replayFiles{}, fmt.Errorf("%w: %s: %w", errUsage, want.flag, err)
		}
		*want.file = file
	}
	return files, nil
}

// create creates or empties the file at path unless it is the trace.
func create(path, trace string) (*os.File, error) {
	old, err := os.Stat(path)
	if err == nil {
		if in, err := os.Stat(trace); err == nil && os.SameFile(old, in) {
			return nil, fmt.Errorf("%s is the trace; name another file", path)
		}
	}
	return os.Create(path)
}

// write writes the report's parts and closes the files.
func (s replayFiles) write(r bench.Report) error {
	for _, part := range []struct {
		file  *os.File
		write func(io.Writer) error
	}{{s.windows, r.WriteWindows}, {s.hdr, r.WriteHDR}} {
		if part.file == nil {
			continue
		}
		if err := part.write(part.file); err != nil {
			return fmt.Errorf("cannot write %s: %w", part.file.Name(), err)
		}
		if err := part.file.Close(); err != nil {
			return fmt.Errorf("cannot write %s: %w", part.file.Name(), err)
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
