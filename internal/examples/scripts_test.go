package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withoutHelp are the scripts that have none of their own: helm passes it on.
var withoutHelp = map[string]bool{"helm": true}

// TestHelpOfScripts checks that the help of make and of each script fits into 80 columns, and that a script's help
// begins with its usage.
func TestHelpOfScripts(t *testing.T) {
	files, err := filepath.Glob(root + "/scripts/*")
	require.NoError(t, err)
	found := 0
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		name := filepath.Base(file)
		if info.IsDir() || info.Mode().Perm()&0o111 == 0 || withoutHelp[name] {
			continue
		}
		cmd := exec.CommandContext(t.Context(), file, "--help")
		cmd.Env = append(os.Environ(), "COLUMNS=80")
		help, err := cmd.CombinedOutput()
		if _, lookErr := exec.LookPath("python3"); lookErr != nil && strings.Contains(string(help), "python3") {
			continue
		}
		require.NoError(t, err, "%s: %s", name, help)
		assert.Regexp(t, `^usage: scripts/`+name+`\b`, string(help))
		checkWidth(t, "scripts/"+name, string(help))
		found++
	}
	assert.Greater(t, found, 10)
	help, err := exec.CommandContext(t.Context(), "make", "-s", "-C", root, "help").CombinedOutput()
	require.NoError(t, err, "%s", help)
	checkWidth(t, "make help", string(help))
}

func checkWidth(t *testing.T, where, help string) {
	t.Helper()
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 80, "%s: %s", where, line)
	}
}

// TestStepsAreExplained checks that the help of scripts/test has each of its steps.
func TestStepsAreExplained(t *testing.T) {
	help, err := exec.CommandContext(t.Context(), root+"/scripts/test", "--help").Output()
	require.NoError(t, err)
	steps, err := exec.CommandContext(t.Context(), root+"/scripts/test", "--list").Output()
	require.NoError(t, err)
	for step := range strings.FieldsSeq(string(steps)) {
		assert.Regexp(t, `(?m)^  (\w+, )?`+step+`(, \w+)?( \*)? `, string(help))
	}
}
