//go:build linux

package vllm

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/backend/mooncake"
	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	python "github.com/hitline/hitline/clients/python"
	"github.com/hitline/hitline/scripts/reference"
)

// maxTempDir bounds the path that the folder lies in, in bytes: the path of a socket has at most
// 107, and that of vLLM's takes up to 60 with the name of the host.
const maxTempDir = 32

// prepare writes the folder, and starts the master, the hitlines and the store, which all cells share. stop undoes it, also after an error.
func (m *meter) prepare(ctx context.Context) (err error) {
	parent := os.TempDir()
	if len(parent) > maxTempDir {
		parent = "/tmp"
	}
	if m.folder, err = os.MkdirTemp(parent, "hitbench"); err != nil {
		return err
	}
	if err := os.CopyFS(m.folder, reference.OverMaster); err != nil {
		return err
	}
	if err := os.CopyFS(m.folder, python.Client); err != nil {
		return err
	}
	if err := m.checkPython(ctx); err != nil {
		return err
	}
	if err := m.startMaster(ctx); err != nil {
		return err
	}
	if err := m.startHitlines(ctx); err != nil {
		return err
	}
	m.store, err = m.startRole(ctx, "store")
	return err
}

// path returns the path of a file of the folder.
func (m *meter) path(name string) string { return filepath.Join(m.folder, name) }

// versions is a program that prints where mooncake_master is, and the versions of what is used.
const versions = `import importlib.metadata, os, platform, mooncake.store, zmq
found = [d for d in importlib.metadata.distributions() if (d.metadata["Name"] or "").startswith("mooncake-transfer-engine")]
print(os.path.join(os.path.dirname(mooncake.__file__), "mooncake_master"))
print(f"Python {platform.python_version()}, pyzmq {zmq.__version__}, Mooncake {found[0].version if found else 'unknown'}")`

// checkPython fails unless Python has what is needed, and notes the versions in the report.
func (m *meter) checkPython(ctx context.Context) error {
	cmd := exec.Command(m.o.Python, "-c", versions)
	cmd.Env = append(process.Environ(), "PYTHONPATH=") // which the roles do not have either
	output, err := process.Output(ctx, cmd, m.o.Timeout)
	lines := strings.Split(output, "\n")
	if err != nil || len(lines) < 2 {
		return measure.BadOptions("%s cannot be used: %v; name with --python one in which "+
			"python3 -m pip install pyzmq mooncake-transfer-engine-non-cuda has been run", m.o.Python, err)
	}
	m.masterPath = lines[len(lines)-2]
	m.report.Python = lines[len(lines)-1]
	return nil
}

// startMaster starts a master on free ports of loopback and waits until it answers.
func (m *meter) startMaster(ctx context.Context) error {
	var addrs [2]string // of its calls and of its admin port
	for i := range addrs {
		var err error
		if addrs[i], err = process.FreeAddr(); err != nil {
			return err
		}
	}
	_, port, _ := net.SplitHostPort(addrs[0])
	_, admin, _ := net.SplitHostPort(addrs[1])
	cmd := exec.Command(m.masterPath, "--rpc_address=127.0.0.1", "--rpc_port="+port, "--metrics_host=127.0.0.1", "--metrics_port="+admin)
	ready := func([]byte) (string, bool) { return addrs[0], true } // any line; awaitMaster waits for an answer
	p, err := process.Start(ctx, cmd, process.Options{Timeout: m.o.Timeout, Ready: ready})
	if err != nil {
		return err
	}
	m.master, m.masterAddr = p, addrs[0]
	if err := m.awaitMaster(ctx); err != nil {
		return fmt.Errorf("%w: %s does not answer: %w", measure.ErrLost, m.masterPath, err)
	}
	return nil
}

// awaitMaster waits until the master answers, also to a client that had to wait between two attempts
// to connect.
func (m *meter) awaitMaster(ctx context.Context) error {
	client, err := mooncake.New(mooncake.Config{Masters: []string{m.masterAddr}})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it always returns nil
	ctx, cancel := context.WithTimeout(ctx, m.o.Timeout)
	defer cancel()
	for {
		_, err := client.Exists(ctx, backend.KeyList{"ready"}, false)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// startHitlines starts a hitline for each side that is one.
func (m *meter) startHitlines(ctx context.Context) error {
	m.hitlines = map[string]string{}
	// It asks the store at each lookup.
	if err := m.startHitline(ctx, hitline, "HITLINE_BACKEND_MOONCAKE_REMEMBER=0s"); err != nil {
		return err
	}
	return m.startHitline(ctx, remembering)
}

// startHitline starts hitline on a unix socket, without a pool: the engines describe theirs.
func (m *meter) startHitline(ctx context.Context, side string, variables ...string) error {
	address := "ipc://" + m.path(side+".sock")
	cmd := exec.Command(m.o.Hitline, "serve", "--listen", address, "--backend", "mooncake")
	cmd.Env = append(process.Environ(), "HITLINE_LOG_FORMAT=json",
		"HITLINE_BACKEND_MOONCAKE_MASTERS="+m.masterAddr,
		// The longest lookups take a master a second. vLLM waits for them without a bound.
		"HITLINE_BACKEND_MOONCAKE_TIMEOUT="+m.o.Timeout.String())
	cmd.Env = append(cmd.Env, variables...)
	p, err := process.Start(ctx, cmd, process.Options{Timeout: m.o.Timeout})
	if err != nil {
		return err
	}
	m.hitlineServers = append(m.hitlineServers, p)
	m.hitlines[side] = address
	return nil
}
