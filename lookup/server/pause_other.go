//go:build !linux

package server

import "github.com/panjf2000/gnet/v2"

// readPauser returns nil: reading cannot be paused here.
func readPauser(gnet.Conn) func(paused bool) { return nil }
