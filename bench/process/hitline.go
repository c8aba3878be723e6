//go:build linux

package process

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Hitline returns the command that serves hitline over memory on a free port of loopback, with one full-attention
// group whose blocks have blockSize tokens, and a bound that is more than that many entries take, so that nothing is
// evicted; more are further arguments.
func Hitline(path string, blockSize, entries int, more ...string) *exec.Cmd {
	bound := "HITLINE_BACKEND_MEMORY_MAX_BYTES=" + strconv.Itoa(max(1<<30, 128*entries))
	args := []string{"--listen", "tcp://127.0.0.1:0", "--block-size", strconv.Itoa(blockSize)}
	return Serve(path, []string{bound}, append(args, more...)...)
}

// Serve returns the command that serves hitline with arguments and variables, and logs as [Start] reads it. Of this
// process's variables that configure hitline only the choice of kernels is passed on.
func Serve(path string, variables []string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, append([]string{"serve"}, args...)...)
	cmd.Env = append(append(Environ(), "HITLINE_LOG_FORMAT=json"), variables...)
	return cmd
}

// Environ returns the variables of this process without those that configure hitline, but for
// the choice of kernels.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "HITLINE_") && !strings.HasPrefix(variable, "HITLINE_KERNEL=")
	})
}
