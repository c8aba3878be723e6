package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// errOwnerEnded is the cause of a context that ended because standard input did.
var errOwnerEnded = errors.New("standard input ended")

// owner ties serve to the program that started it. That program holds the other end of the
// pipe that is standard input. The kernel closes that end however the program ends.
type owner struct {
	exitOnEOF bool
	removeDir string // "" for none; stays until standard input has ended
}

// ownerFlags defines the flags for a program that runs serve as its own.
func ownerFlags(cmd *cobra.Command) *owner {
	o := &owner{}
	f := cmd.Flags()
	f.BoolVar(&o.exitOnEOF, "exit-on-stdin-eof", false, "stop when standard input ends, as on SIGTERM")
	f.StringVar(&o.removeDir, "remove-dir", "", "empty `folder` to remove after that")
	return o
}

// follow sets a context on cmd that also ends with standard input, if exitOnEOF is set. The
// caller calls end when serve has ended: it cancels the context and removes the folder. While the other
// program lives, the folder stays, so that nobody else can take its name.
func (o *owner) follow(cmd *cobra.Command) (end func()) {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	cmd.SetContext(ctx)
	if o.exitOnEOF {
		// A read of standard input cannot be interrupted. The goroutine ends with standard
		// input or with this process.
		go func() {
			_, _ = io.Copy(io.Discard, cmd.InOrStdin()) // an error counts as the end
			cancel(errOwnerEnded)
		}()
	}
	return func() {
		cancel(nil)
		if !errors.Is(context.Cause(ctx), errOwnerEnded) {
			return
		}
		if info, err := os.Lstat(o.removeDir); err == nil && info.IsDir() {
			_ = os.Remove(o.removeDir) // fails for a folder that is not empty, which stays
		}
	}
}
