package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// container is what the process in namespaces of its own starts.
type container struct {
	Root    string // the unpacked image
	Config  v1.Config
	Version string
}

// containerVariable has the container as JSON, for this test program started again.
const containerVariable = "HITLINE_TEST_CONTAINER"

// The image runs as a container runtime starts it: the root file system is read-only, the user
// has no rights, and the network and the processes are its own.
func TestStart(t *testing.T) {
	if os.Geteuid() != 0 {
		skip(t, "needs root, for namespaces: run make check-image")
	}
	root := filepath.Join(t.TempDir(), "root")
	img := imageUnderTest(t, "amd64")
	require.NoError(t, unpack(img, root))
	_, version, err := readLayout(layoutUnderTest(t))
	require.NoError(t, err)
	text, err := json.Marshal(container{Root: root, Config: configOf(t, img).Config, Version: version})
	require.NoError(t, err)

	self, err := os.Executable()
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), containerVariable+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, string(output))
	assert.Contains(t, string(output), "drained and stopped\n")
	t.Log(string(output))
}

// skip skips a test that this machine lacks something for. With CI=true it fails.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// TestUnpackedProgramForArm64 runs the other architecture's program where qemu is installed.
func TestUnpackedProgramForArm64(t *testing.T) {
	qemu, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		if qemu, err = exec.LookPath("qemu-aarch64"); err != nil {
			skip(t, "needs qemu (Debian: qemu-user-static)")
		}
	}
	root := filepath.Join(t.TempDir(), "root")
	require.NoError(t, unpack(imageUnderTest(t, "arm64"), root))
	text, err := exec.CommandContext(t.Context(), qemu, filepath.Join(root, programPath), "version", "--json").Output()
	require.NoError(t, err)
	var answer struct{ Version, Platform, Commit string }
	require.NoError(t, json.Unmarshal(text, &answer), string(text))
	rel, err := readRelease(t.Context(), source)
	require.NoError(t, err)
	assert.Equal(t, struct{ Version, Platform, Commit string }{"v" + rel.version, "linux/arm64", rel.commit}, answer)
}

// runInside runs the container if this process was started for that.
func runInside() bool {
	text := os.Getenv(containerVariable)
	if text == "" {
		return false
	}
	var c container
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// run prepares the namespaces, and starts, asks and stops the server.
func (c container) run() error {
	if err := prepareNamespaces(c.Root); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Root, "probe"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("the root file system is not read-only: %v", err)
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	server := c.command(ctx, append(c.Config.Entrypoint, c.Config.Cmd...)...)
	var logged bytes.Buffer
	server.Stdout, server.Stderr = &logged, &logged
	if err := server.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	var status error // once ended is closed
	go func() {
		status = server.Wait()
		close(ended)
	}()
	err := c.checkServer(ctx, server.Process.Pid, ended)
	if err == nil {
		// A client that stays connected does not keep the server from stopping.
		var conn net.Conn
		if conn, err = net.Dial("tcp", "127.0.0.1:7557"); err == nil {
			defer conn.Close()
		}
	}
	if err == nil {
		err = server.Process.Signal(unix.SignalNum(c.Config.StopSignal))
	}
	if err != nil {
		_ = server.Process.Kill()
		<-ended
		return fmt.Errorf("%w\n%s", err, &logged)
	}
	<-ended
	if status != nil {
		return fmt.Errorf("the server ended with %w after %s\n%s", status, c.Config.StopSignal, &logged)
	}
	fmt.Printf("%s\ndrained and stopped\n", &logged)
	return nil
}

// prepareNamespaces gives this process a network of a loopback interface, its own /proc and a
// read-only view of root.
func prepareNamespaces(root string) error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{root, root, "", unix.MS_BIND},
		{"", root, "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, loopback)
}

// command returns a command in the root file system, as the user of the image.
func (c container) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.Config.WorkingDir, c.Config.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     c.Root,
		Credential: &syscall.Credential{Uid: userID, Gid: userID},
	}
	return cmd
}

// output runs a command in the container and returns what it prints.
func (c container) output(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := c.command(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, text)
	}
	return strings.TrimSpace(string(text)), nil
}

// checkServer waits until the health check succeeds, and sends the server what a client and a probe send.
func (c container) checkServer(ctx context.Context, pid int, ended <-chan struct{}) error {
	for check := c.Config.Healthcheck.Test[1:]; ; {
		_, err := c.output(ctx, "", check...)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the health check fails: %w", err)
		case <-ended:
			return errors.New("the server ended at its start")
		case <-time.After(50 * time.Millisecond):
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	for _, want := range []string{fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", userID), "CapEff:\t0000000000000000\n"} {
		if !strings.Contains(string(status), want) {
			return fmt.Errorf("/proc/%d/status lacks %q:\n%s", pid, want, status)
		}
	}
	hashes := fmt.Sprintf("%064d\n%064d\n", 1, 2)
	if _, err := c.output(ctx, hashes, programPath, "store", "--group", "0", "--hashes-file", "-"); err != nil {
		return err
	}
	hit, err := c.output(ctx, hashes, programPath, "lookup", "--tokens", "48", "--hashes-file", "-")
	if err != nil {
		return err
	}
	if hit != "32" {
		return fmt.Errorf("the lookup of two stored blocks printed %q, want 32", hit)
	}
	for path, want := range map[string]string{
		"/readyz": "", "/healthz": "", "/metrics": `hitline_build_info{`,
	} {
		text, err := get(ctx, "http://127.0.0.1:9557"+path)
		if err != nil {
			return err
		}
		if !strings.Contains(text, want) {
			return fmt.Errorf("%s has no %q:\n%s", path, want, text)
		}
	}
	version, err := c.output(ctx, "", programPath, "version", "--json")
	if err == nil && !strings.Contains(version, `"v`+c.Version+`"`) {
		err = fmt.Errorf("the program says %s, want version v%s", version, c.Version)
	}
	return err
}

// get returns the body of a page, whose status must be 200.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, answer.Status, text)
	}
	return string(text), err
}
