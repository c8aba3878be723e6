//go:build !linux

package server

import "github.com/panjf2000/gnet/v2"

// pauserOf returns nil: reading cannot be paused here.
func pauserOf(gnet.Conn) func(on bool) { return nil }
