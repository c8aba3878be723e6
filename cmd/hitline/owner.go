package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// errOwnerEnded is the cause of a context that ended with the owner.
var errOwnerEnded = errors.New("standard input ended")

// owner is the program that started serve as its own. It holds the other end of standard
// input, which ends however the owner ends.
type owner struct {
	exitOnEOF bool
	removeDir string // "" for none
}

// ownerFlags defines the flags for a program that runs serve as its own.
func ownerFlags(cmd *cobra.Command) *owner {
	o := &owner{}
	f := cmd.Flags()
	f.BoolVar(&o.exitOnEOF, "exit-on-stdin-eof", false, "stop when standard input ends, as on SIGTERM")
	f.StringVar(&o.removeDir, "remove-dir", "", "`folder` of its own to remove at the end, if it is\nempty then")
	return o
}

// follow has the context of cmd end with the owner. The function that it returns is called
// at the end and removes the folder.
func (o *owner) follow(cmd *cobra.Command) (end func()) {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	cmd.SetContext(ctx)
	if o.exitOnEOF {
		// It cannot be interrupted: it ends with the owner or with this process.
		go func() {
			_, _ = io.Copy(io.Discard, cmd.InOrStdin()) // an error is an end, too
			cancel(errOwnerEnded)
		}()
	}
	return func() {
		cancel(nil)
		if o.removeDir != "" {
			_ = os.Remove(o.removeDir) // one that is not empty is not removed
		}
	}
}
