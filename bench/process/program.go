//go:build linux

package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// ErrMissing says that a program is not on this machine.
var ErrMissing = errors.New("missing")

// FindProgram returns the path of a program: the named one, which may be a path, or without one
// that of this name beside this program, or on PATH. An error wraps [measure.ErrOptions] if the
// named one is not there, and else [ErrMissing], with what to do.
func FindProgram(named, name, todo string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("%w: %w", measure.ErrOptions, err)
		}
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %s is neither beside this program nor on PATH; %s", ErrMissing, name, todo)
	}
	return path, nil
}

// Output runs a program to its end and returns what it prints on standard output, without space
// around. An error has the last line of its standard error.
func Output(ctx context.Context, cmd *exec.Cmd, timeout time.Duration) (string, error) {
	var text strings.Builder
	cmd.Stdout = &text
	p, err := launch(cmd, nil, &output{})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
	p.Stop()
	if err := ctx.Err(); err != nil || !cmd.ProcessState.Success() {
		return "", fmt.Errorf("%w: %s", cmp.Or(err, errors.New(p.Ended())), p.log.last())
	}
	return strings.TrimSpace(text.String()), nil
}
