//go:build !linux

package coordinator

import "runtime"

func schedYield() { runtime.Gosched() }
