//go:build linux

package process

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// HitlineBound returns a bound in bytes for a memory backend that holds that many
// entries: more than they take, so that nothing is evicted.
func HitlineBound(entries int) int { return max(1<<30, 128*entries) }

// Hitline returns the command that serves hitline on a free port of loopback, with
// one full-attention group whose blocks have blockSize tokens (0: whatever more says),
// and a bound in bytes on the memory backend; more are further arguments. Of the
// variables that configure hitline only the choice of kernels is passed on.
func Hitline(path string, blockSize, maxBytes int, more ...string) *exec.Cmd {
	args := []string{"serve", "--listen", "tcp://127.0.0.1:0"}
	if blockSize > 0 {
		args = append(args, "--block-size", strconv.Itoa(blockSize))
	}
	cmd := exec.Command(path, append(args, more...)...)
	cmd.Env = append(Environ(), "HITLINE_LOG_FORMAT=json", "HITLINE_BACKEND_MEMORY_MAX_BYTES="+strconv.Itoa(maxBytes))
	return cmd
}

// Environ returns the variables of this process without those that configure hitline, but for
// the choice of kernels.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "HITLINE_") && !strings.HasPrefix(variable, "HITLINE_KERNEL=")
	})
}
