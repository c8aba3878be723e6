package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Help has commands and flags by groups, and lines of 80 columns at most.
func TestHelp(t *testing.T) {
	got := run(t.Context(), newTestRoot(nil), "--help")
	assert.Equal(t, result{stdout: `prog is for tests.

Usage:
  prog COMMAND [flags]

Examples:
  prog measure

Measure:
  measure     Measure

Other:
  completion  Print a script that completes command lines in a shell
  version     Print it

Flags:
  -h, --help      help for prog
  -v, --version   version for prog

prog help COMMAND explains a command.
`}, got)
	assert.Equal(t, got, run(t.Context(), newTestRoot(nil), "help"))

	got = run(t.Context(), newTestRoot(nil), "measure --help")
	assert.Equal(t, result{stdout: `Measure something.

Usage:
  prog measure --out FILE [flags]

Examples:
  prog measure --out x

Flags:
      --connections int     connections, of which there may be so many
                            that this text takes more than a line (default 1)
  -d, --duration duration   how long
      --dialect string      dialect: raw or zmtp (default "raw")
      --out file            file to write
      --log PATH            PATH of the log
  -h, --help                help for measure

Connection:
      --connect address   address
      --json              one line of JSON
`}, got)
	assert.Equal(t, got, run(t.Context(), newTestRoot(nil), "help measure"))
	for line := range strings.Lines(got.stdout + run(t.Context(), newTestRoot(nil), "help completion").stdout) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), columns, line)
	}
}

// The scripts are ones that the shells read, if they are here.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range shells {
		got := run(t.Context(), newTestRoot(nil), "completion "+shell)
		require.Equal(t, ExitDone, got.code, got.stderr)
		assert.Contains(t, got.stdout, "__complete", shell)
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here", shell)
			continue
		}
		cmd := exec.Command(path, "-n")
		cmd.Stdin = strings.NewReader(got.stdout)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", shell, out)
	}
}

// Shells ask by __complete what may follow.
func TestCompletion(t *testing.T) {
	const files, noFiles = ":0", ":4"
	for line, want := range map[string][]string{
		"m":                     {"measure\tMeasure", noFiles},
		"measure --du":          {"--duration\thow long", noFiles},
		"measure --out=x --lo":  {"--log\tPATH of the log", noFiles},
		"measure --dialect ":    {"raw", "zmtp", noFiles},
		"measure --out ":        {files},
		"measure --log ":        {files},
		"measure --connect ":    {noFiles},
		"measure --out=x ":      {noFiles},
		"completion ":           {"bash", "zsh", "fish", noFiles},
		"help ":                 {"completion", "measure", "version", noFiles},
		"help measure ":         {noFiles},
		"completion --nonsense": {noFiles},
	} {
		words := strings.Split("__complete "+line, " ")
		var stdout, stderr strings.Builder
		code := Program{Root: newTestRoot(nil)}.Run(t.Context(), words, nil, &stdout, &stderr)
		assert.Equal(t, ExitDone, code, line)
		assert.Equal(t, want, strings.Split(strings.TrimSpace(stdout.String()), "\n"), line)
	}
}

// asProgram makes the test binary the program under test.
const asProgram = "HITLINE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Program{Root: newTestRoot(nil)}.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// The script of bash completes a flag and its values.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	dir := t.TempDir()
	require.NoError(t, os.Symlink(testBinary(t), filepath.Join(dir, "prog")))
	// What bash does on the tabulator key, and what the package bash-completion has for scripts.
	script := `_init_completion() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
source <(prog completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(($#-1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
__start_prog 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"`
	for line, want := range map[string]string{
		"prog meas":                "measure",
		"prog measure --conne":     "--connections\n--connect",
		"prog measure --dialect z": "zmtp",
	} {
		cmd := exec.Command(bash, append([]string{"-c", script, "bash"}, strings.Fields(line)...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		var got []string
		for reply := range strings.Lines(string(out)) {
			got = append(got, strings.Fields(reply)[0]) // without the description
		}
		assert.ElementsMatch(t, strings.Fields(want), got, line)
	}
}

func testBinary(t *testing.T) string {
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}
