package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/hitline/hitline/bench/workload"
)

// input is a trace together with how it can be read.
type input struct {
	trace workload.Trace
	once  bool // it streams, and can be read through only once
}

// openInput returns the trace at path, or that on standard input for "-". What is
// no regular file, such as a pipe, is streamed if readers is 1 and else read into
// memory first. Such a reading ends when ctx is done.
func (a *app) openInput(ctx context.Context, path string, readers int) (input, error) {
	name, open := path, func() (io.ReadCloser, error) { return os.Open(path) }
	if path == "-" {
		name, open = "stdin", func() (io.ReadCloser, error) { return io.NopCloser(a.stdin), nil }
	} else if regular, err := isRegular(path); err != nil {
		return input{}, err
	} else if regular {
		return input{trace: workload.FileTrace(path)}, nil
	}
	stream := func() (io.ReadCloser, error) {
		src, err := open()
		if err != nil {
			return nil, err
		}
		return interruptible(ctx, src), nil
	}
	if readers == 1 {
		return input{workload.Trace{Name: name, Open: stream}, true}, nil
	}
	text, err := readAll(stream)
	if err != nil {
		return input{}, fmt.Errorf("%w: %s: %w", workload.ErrTrace, name, err)
	}
	return input{trace: workload.Trace{Name: name, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text)), nil
	}}}, nil
}

// isRegular reports whether path is a regular file, and fails where there is
// nothing to read.
func isRegular(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, fmt.Errorf("%w: %w", workload.ErrTrace, err)
	}
	if info.IsDir() {
		return false, fmt.Errorf("%w: %s is a directory; name a file of JSON lines", workload.ErrTrace, path)
	}
	return info.Mode().IsRegular(), nil
}

func readAll(open func() (io.ReadCloser, error)) ([]byte, error) {
	src, err := open()
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return io.ReadAll(src)
}

// interruptible returns a reader of src that fails with the error of ctx once
// ctx is done, which a blocked read of a pipe or a terminal would not. Closing it
// closes src. One goroutine reads ahead; if src blocks forever, so does that
// goroutine, which is of no consequence in a program that ends soon after.
func interruptible(ctx context.Context, src io.ReadCloser) io.ReadCloser {
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(w, src)
		w.CloseWithError(err) // nil makes it io.EOF
	}()
	return pipeCloser{r, src, stop}
}

type pipeCloser struct {
	*io.PipeReader
	src  io.Closer
	stop func() bool
}

// Close ends the reading; the goroutine of interruptible ends with its next write.
func (p pipeCloser) Close() error {
	p.stop()
	_ = p.PipeReader.Close() // documented to return nil
	return p.src.Close()
}
