//go:build !linux

package lookup

import "runtime"

func schedYield() { runtime.Gosched() }
