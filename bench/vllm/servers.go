package vllm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hitline/hitline/backend/mooncake"
	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	python "github.com/hitline/hitline/clients/python"
	"github.com/hitline/hitline/scripts/reference"
)

// maxTempDir bounds the path that the folder lies in, in bytes: the path of a socket has at most
// 107, and that of vLLM's takes up to 60 with the name of the host.
const maxTempDir = 32

// prepare writes the folder, and starts the master and the store, which all cells share. stop undoes it, also after an error.
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
	if m.o.Master == "" {
		m.o.Master = lines[len(lines)-2]
	}
	m.report.Python = lines[len(lines)-1]
	return nil
}

// startMaster starts a master and waits until it answers.
func (m *meter) startMaster(ctx context.Context) error {
	cmd, addr, err := process.MooncakeMaster(m.o.Master)
	if err != nil {
		return err
	}
	ready := func([]byte) (string, bool) { return addr, true } // any line; awaitMaster waits for an answer
	p, err := process.Start(ctx, cmd, process.Options{Timeout: m.o.Timeout, Ready: ready})
	if err != nil {
		return err
	}
	m.master, m.masterAddr = p, addr
	return m.awaitMaster(ctx)
}

// awaitMaster waits until the master answers a call.
func (m *meter) awaitMaster(ctx context.Context) error {
	client, err := mooncake.New(mooncake.Config{Masters: []string{m.masterAddr}})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it always returns nil
	if _, err := process.AwaitMaster(ctx, client, m.o.Timeout); err != nil {
		return fmt.Errorf("%w: %s does not answer: %w", measure.ErrLost, m.o.Master, err)
	}
	return nil
}

// startHitlines starts a hitline for each side that is one, in the place of those before.
func (m *meter) startHitlines(ctx context.Context, grouped bool) error {
	m.stopHitlines()
	m.hitlines, m.grouped = map[string]string{}, grouped
	groups := fmt.Sprintf("HITLINE_BACKEND_MOONCAKE_GROUPS=%v", grouped)
	err := m.startHitline(ctx, hitline, m.o.Hitline, groups, rememberNothing)
	if err == nil {
		err = m.startHitline(ctx, remembering, m.o.Hitline, groups)
	}
	if err == nil && m.o.Before != "" {
		err = m.startHitline(ctx, before, m.o.Before, groups, rememberNothing)
	}
	return err
}

// stopHitlines stops what startHitlines has started.
func (m *meter) stopHitlines() {
	for _, p := range m.hitlineServers {
		p.Stop()
	}
	m.hitlineServers = nil
}

// rememberNothing has hitline ask the store at each lookup.
const rememberNothing = "HITLINE_BACKEND_MOONCAKE_REMEMBER=0s"

// startHitline starts hitline on a unix socket, without a pool: the engines describe theirs. One
// that does not know a variable, as Before may not, is started without them.
func (m *meter) startHitline(ctx context.Context, side, path string, variables ...string) error {
	address := "ipc://" + m.path(side+".sock")
	cmd := exec.Command(path, "serve", "--listen", address, "--backend", "mooncake")
	cmd.Env = append(process.Environ(), "HITLINE_LOG_FORMAT=json",
		"HITLINE_BACKEND_MOONCAKE_MASTERS="+m.masterAddr,
		// The longest lookups take a master a second. vLLM waits for them without a bound.
		"HITLINE_BACKEND_MOONCAKE_TIMEOUT="+m.o.Timeout.String())
	cmd.Env = append(cmd.Env, variables...)
	p, err := process.Start(ctx, cmd, process.Options{Timeout: m.o.Timeout})
	if err != nil && len(variables) > 0 && strings.Contains(err.Error(), "no such variable") {
		m.o.OnNote(fmt.Sprintf("%s does not know all of %s", path, strings.Join(variables, ", ")))
		return m.startHitline(ctx, side, path)
	}
	if err != nil {
		return err
	}
	m.hitlineServers = append(m.hitlineServers, p)
	m.hitlines[side] = address
	return nil
}
