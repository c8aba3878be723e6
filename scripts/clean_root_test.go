package scripts

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// shellRoot makes a folder with a root named bookworm that holds a shell alone, and returns the folder. So
// the tests need no network.
func shellRoot(t *testing.T) string {
	for _, tool := range []string{"debootstrap", "unshare", "ip", "perl", "flock"} {
		if _, err := exec.LookPath(tool); err != nil {
			storetest.SkipOrFail(t, "%s is not installed", tool)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: make check-packages runs it by root in CI")
	}
	if err := exec.Command("unshare", "--mount", "--pid", "--fork", "--net", "true").Run(); err != nil {
		storetest.SkipOrFail(t, "this process may not create namespaces: %v", err)
	}
	roots := t.TempDir()
	root := filepath.Join(roots, "bookworm")
	for _, folder := range []string{"bin", "dev", "proc", "run", "etc"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	program, err := filepath.EvalSymlinks("/bin/sh")
	require.NoError(t, err)
	libraries, err := exec.Command("ldd", program).Output()
	require.NoError(t, err)
	files := []string{program}
	for _, word := range strings.Fields(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	for i, from := range files {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		to := filepath.Join(root, from)
		if i == 0 {
			to = filepath.Join(root, "bin", "sh")
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, content, 0o755))
	}
	return roots
}

func cleanRoot(roots string, args ...string) *exec.Cmd {
	// env undoes what the tests' own caller ignores, as nohup(1) does.
	cmd := exec.Command("env", append([]string{"--default-signal=HUP,INT,QUIT,TERM", "./clean-root"}, args...)...)
	cmd.Env = append(os.Environ(), "HITLINE_ROOTS="+roots)
	cmd.Stderr = os.Stderr
	return cmd
}

// names returns the names in the folder.
func names(t *testing.T, folder string) []string {
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestCleanRoot(t *testing.T) {
	roots := shellRoot(t)
	shown := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(shown, "file"), []byte("content"), 0o644))
	const script = `read word; echo "$word $NAME $HOME ${OTHER-unset}"
		read content </shown/file; echo "$content"
		(echo x >/shown/new) 2>/dev/null && echo "the folder can be written"
		echo x >/etc/written
		echo "$$"
		while read -r host; do echo "$host"; done </etc/hosts
		while read -r interface _; do echo "$interface"; done </proc/net/dev
		exit 7`
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(roots, "bookworm", "out")))
	escaping := cleanRoot(roots, "--bind", shown+":/out/new", "sh", "-c", "true")
	escaping.Stderr = nil
	text, err := escaping.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(text), "a link leads out of the root")
	t.Setenv("OTHER", "set")
	cmd := cleanRoot(roots, "--bind", shown+":/shown", "--env", "NAME=value", "sh", "-c", script)
	cmd.Stdin = strings.NewReader("word\n")
	out, err := cmd.Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 7, exit.ExitCode())
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 7, string(out))
	assert.Equal(t, []string{"word value /root unset", "content"}, lines[:2])
	assert.Less(t, len(lines[2]), 3, "process ids begin again: %s", lines[2])
	assert.Equal(t, "127.0.0.1 localhost clean-root", lines[3])
	assert.Equal(t, "lo:", lines[6], "behind two lines of titles there is one interface")
	assert.NoFileExists(t, filepath.Join(roots, "bookworm", "etc", "written"), "the root is kept as it was")
	assert.Equal(t, []string{".lock", "bookworm"}, names(t, roots), "what the command wrote is gone")
}

// A signal ends the command and all that it started, and the script cleans up.
func TestCleanRootIsStopped(t *testing.T) {
	roots := shellRoot(t)
	// The command reads a pipe that nothing is written to.
	cmd := cleanRoot(roots, "sh", "-c", "echo started; read never")
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	reader := bufio.NewReader(out)
	line, err := reader.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "started\n", line)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { _, err := reader.ReadString('\n'); ended <- err }()
	select {
	case err := <-ended:
		assert.Error(t, err, "the command's output ends with it")
	case <-time.After(30 * time.Second):
		t.Fatal("the command runs on")
	}
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	assert.Equal(t, 143, exit.ExitCode())
	assert.Equal(t, []string{".lock", "bookworm"}, names(t, roots))
}

// The command gets each signal as on a terminal, although the script runs it in the background.
func TestCleanRootSignals(t *testing.T) {
	roots := shellRoot(t)
	for name, status := range map[string]int{"INT": 130, "QUIT": 131, "TERM": 143, "HUP": 129} {
		out, err := cleanRoot(roots, "sh", "-c", "kill -"+name+" $$; echo ignored").Output()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s: %s", name, out)
		assert.Equal(t, status, exit.ExitCode(), name)
	}
}

func TestCleanRootFlags(t *testing.T) {
	out, err := exec.Command("./clean-root", "--help").Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "usage: scripts/clean-root")
	for _, args := range [][]string{
		{}, {"--wrong"}, {"--packages"}, {"--packages", "a b", "true"},
		{"--bind", "/nowhere:/x", "true"}, {"--bind", "/etc", "true"}, {"--bind", "/etc:/../x", "true"}, {"--bind", "/etc:/x/..", "true"},
		{"--env", "touch", "x"}, {"--env", "1A=2", "x"},
	} {
		var exit *exec.ExitError
		require.ErrorAs(t, exec.Command("./clean-root", args...).Run(), &exit, args)
		assert.Equal(t, 2, exit.ExitCode(), args)
	}
}
