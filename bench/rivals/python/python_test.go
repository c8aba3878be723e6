package python

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The server's own tests; they need no ZeroMQ.
func TestLookupServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Python")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no python3: %v", err)
		}
		t.Skipf("no python3: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-m", "unittest", "discover", "-v", "-s", "tests", "-t", ".")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=error")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "Ran 0 tests")
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Ran ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
