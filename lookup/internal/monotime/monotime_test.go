package monotime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Neither service, server nor client measures time by the time of day, which jumps when the clock is set: a
// step forward would close every connection that waits.
func TestNothingGoesByTheTimeOfDay(t *testing.T) {
	var files []string
	for _, dir := range []string{"../..", "../../server", "../../client"} {
		found, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, found, dir)
		files = append(files, found...)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotContains(t, string(text), "UnixNano()", name)
	}
}
