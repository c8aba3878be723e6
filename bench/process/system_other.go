//go:build !linux

package process

import (
	"errors"
	"os"
	"syscall"
	"time"
)

var errLinux = errors.New("only on Linux")

func kill(p *os.Process) { _ = p.Kill() } // fails if it has ended

func attributes() *syscall.SysProcAttr { return nil }

// CPU fails.
func (p *Process) CPU() (time.Duration, error) { return 0, errLinux }

// Cores returns none: this process cannot be pinned.
func Cores() ([]int, error) { return nil, nil }

func pinThread(int, ...int) error { return errLinux }

// Pin fails.
func Pin(...int) error { return errLinux }
