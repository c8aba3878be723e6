//go:build !linux

package coordinator

import "runtime"

func yieldCore() { runtime.Gosched() }
