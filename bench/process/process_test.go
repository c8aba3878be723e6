//go:build linux

package process

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/bench/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) } // gnet's init starts some

// A line may come in pieces; what is not the ready line is passed over.
func TestOutputLines(t *testing.T) {
	log := &output{find: hitlineReady, ready: make(chan string, 1)}
	assert.Equal(t, "it said nothing", log.last())
	for _, piece := range []string{"one\n{\"msg\":\"read", "y\",\"listen\":[\"a\",\"b\"]}", "\n{\"msg\":\"ready\",\"listen\":[]}\nlast \n"} {
		select {
		case addr := <-log.ready:
			t.Fatalf("ready too early: %s", addr)
		default:
		}
		n, err := log.Write([]byte(piece))
		require.NoError(t, err)
		assert.Equal(t, len(piece), n)
	}
	assert.Equal(t, "a", <-log.ready)
	assert.Equal(t, "last", log.last())
}

// What another server says when it is ready is up to whoever starts it.
func TestStart(t *testing.T) {
	ready := func(line []byte) (string, bool) { return "there", string(line) == "ready" }
	o := Options{Timeout: 20 * time.Second, Ready: ready}
	p, err := Start(t.Context(), exec.Command("sh", "-c", "echo ready; exec sleep 1000"), o)
	require.NoError(t, err)
	assert.Equal(t, "there", p.Addr())
	p.Stop()
	assert.Equal(t, "signal: killed", p.Ended())
	_, err = Start(t.Context(), exec.Command("sh", "-c", "echo no luck; exit 3"), o)
	require.ErrorContains(t, err, "ended (exit status 3): no luck")
	_, err = Start(t.Context(), exec.Command("/no/such"), o)
	require.ErrorContains(t, err, "cannot start /no/such")
}

// A server may be a script that runs the real one: both end, and nothing waits for
// what the second keeps open.
func TestStopOfScript(t *testing.T) {
	ready := func(line []byte) (string, bool) { return string(line), true }
	p, err := Start(t.Context(), exec.Command("sh", "-c", "sleep 1000 & echo $!; wait"), Options{Timeout: 20 * time.Second, Ready: ready})
	require.NoError(t, err)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.Stop()
	}()
	child, err := strconv.Atoi(p.Addr())
	require.NoError(t, err)
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		_ = syscall.Kill(child, syscall.SIGKILL)
		t.Fatal("Stop waits for what the script has started")
	}
	gone := func() bool { // or nobody has asked how it ended
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}
	require.Eventually(t, gone, 20*time.Second, time.Millisecond)
}

// A server runs on the cores that it is given, also where this process may not.
func TestStartOnCores(t *testing.T) {
	allowed, err := Cores()
	require.NoError(t, err)
	p := Halves(allowed, SystemCPUs())
	undo, err := p.PinClient()
	require.NoError(t, err)
	defer undo()
	ready := func(line []byte) (string, bool) { return string(line), true }
	for _, cores := range [][]int{p.Server, p.Server[:1]} {
		o := Options{Cores: cores, Timeout: 20 * time.Second, Ready: ready}
		server, err := Start(t.Context(), exec.Command("sh", "-c", "grep Cpus_allowed_list /proc/self/status; exec sleep 1000"), o)
		require.NoError(t, err)
		defer server.Stop()
		if len(cores) == 1 {
			assert.Equal(t, fmt.Sprintf("Cpus_allowed_list:\t%d", cores[0]), server.Addr())
		}
	}
}

func TestOutput(t *testing.T) {
	text, err := Output(t.Context(), exec.Command("sh", "-c", "echo; echo 1; echo 2"), 20*time.Second)
	require.NoError(t, err)
	assert.Equal(t, "1\n2", text)
	_, err = Output(t.Context(), exec.Command("sh", "-c", "echo 1; echo no luck >&2; exit 4"), 20*time.Second)
	require.ErrorContains(t, err, "exit status 4: no luck")
	_, err = Output(t.Context(), exec.Command("/no/such"), 20*time.Second)
	require.ErrorIs(t, err, measure.ErrLost)
}
