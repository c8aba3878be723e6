package python_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/fakeserver"
)

// What a later server adds to its replies changes nothing that the package reads. HITLINE_TEST_RELEASED_WHEEL names a released
// wheel that is to be tested, too: what was added since was no news to it.
func TestGrownReplies(t *testing.T) {
	python := python3(t)
	t.Parallel()
	here, err := os.Getwd()
	require.NoError(t, err)
	packages := map[string]string{"this tree": here}
	if wheel := os.Getenv("HITLINE_TEST_RELEASED_WHEEL"); wheel != "" {
		packages["released"] = t.TempDir()
		out, err := pip(t, python, "-m", "pip", "install", "--quiet", "--no-index", "--target", packages["released"], wheel)
		require.NoError(t, err, "%s", out)
	}
	for name, folder := range packages {
		t.Run(name, func(t *testing.T) {
			fakeserver.EachGrowth(t, func(t *testing.T, s *fakeserver.Server) string {
				cmd := command(t, python, filepath.Join(here, "tests", "growth.py"), s.Lookup, s.Router)
				cmd.Env = append(cmd.Env, "PYTHONPATH="+folder)
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
				return strings.NewReplacer(s.Lookup, "SERVER", s.Router, "SERVER").Replace(string(out))
			})
		})
	}
}
