package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTutorialScript checks that scripts/tutorial, which runs docs/tutorial.md where there is vLLM, sees what differs
// from the page.
func TestTutorialScript(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "with CI=true nothing is skipped")
		t.Skip("it takes python3")
	}
	const page = "Needs root:\n\n    apt-get install none\n\nThen\n\n    echo left >~/file\n    printf unended\n\n" +
		"and\n\n    $ cat ~/file; echo 12 ms\n    left\n    … ms\n    $ true\n\nend\n"
	for name, tt := range map[string]struct {
		old, new string
		code     int
		says     []string
	}{
		"right":             {code: 0, says: []string{"all 3 blocks and commands did as the page says"}},
		"another line":      {old: "    left\n", new: "    right\n", code: 1, says: []string{"page.md:12: cat ~/file; echo 12 ms", "  shown:   right", "  printed: left"}},
		"line not shown":    {old: "    left\n", code: 1, says: []string{"  printed: 12 ms"}},
		"line not printed":  {old: "echo 12 ms", new: "echo", code: 1, says: []string{"  shown:   … ms"}},
		"command not right": {old: "$ true", new: "$ false", code: 1, says: []string{"page.md:15: this failed", ": false"}},
		"block not right":   {old: "printf unended", new: "exit 0", code: 1, says: []string{"page.md:7: this failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "page.md")
			require.NoError(t, os.WriteFile(file, []byte(strings.Replace(page, tt.old, tt.new, 1)), 0o600))
			cmd := exec.CommandContext(t.Context(), "python3", "-B", root+"/scripts/tutorial", "--page", file, filepath.Join(dir, "home"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				require.IsType(t, &exec.ExitError{}, err)
			}
			assert.Equal(t, tt.code, cmd.ProcessState.ExitCode(), "%s", out)
			for _, says := range tt.says {
				assert.Contains(t, string(out), says)
			}
		})
	}
}
