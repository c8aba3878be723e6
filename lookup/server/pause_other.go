//go:build !linux

package server

import "github.com/panjf2000/gnet/v2"

// readPauser cannot pause reading here.
type readPauser struct{}

// newReadPauser returns nil.
func newReadPauser(gnet.Conn) *readPauser { return nil }

func (*readPauser) pause()   {}
func (*readPauser) restore() {}
func (*readPauser) resume()  {}

// unacknowledged returns 0: it is not known here.
func unacknowledged(int) int64 { return 0 }
