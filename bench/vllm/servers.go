//go:build linux

package vllm

import (
	"context"
	"os"
	"path/filepath"
	"time"

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
	found, err := process.FindMooncake(ctx, m.o.Python, m.o.Timeout, "zmq:pyzmq")
	if err != nil {
		return err
	}
	m.report.Python = found.Versions
	if m.master, err = found.StartMaster(ctx, m.o.Timeout); err != nil {
		return err
	}
	m.store, err = m.startRole(ctx, "store")
	return err
}

// path returns the path of a file of the folder.
func (m *meter) path(name string) string { return filepath.Join(m.folder, name) }

// startHitlines starts a hitline for each side that is one.
func (m *meter) startHitlines(ctx context.Context) error {
	m.hitlines, m.started = map[string]string{}, time.Now()
	const atEachLookup = "HITLINE_BACKEND_MOONCAKE_REMEMBER=0s"
	for side, variables := range map[string][]string{
		hitline: {atEachLookup, "HITLINE_LIMITS_MAX_ACCOUNT=0"}, knowing: {atEachLookup}, outdated: {atEachLookup}, remembering: nil,
	} {
		if err := m.startHitline(ctx, side, variables...); err != nil {
			return err
		}
	}
	return nil
}

// startHitline starts hitline on a unix socket, without a pool: the engines describe theirs.
func (m *meter) startHitline(ctx context.Context, side string, variables ...string) error {
	address := "ipc://" + m.path(side+".sock")
	variables = append(variables, "HITLINE_BACKEND_MOONCAKE_MASTERS="+m.master.RPC,
		// The longest lookups take a master a second. vLLM waits for them without a bound.
		"HITLINE_BACKEND_MOONCAKE_TIMEOUT="+m.o.Timeout.String())
	cmd := process.Serve(m.o.Hitline, variables, "--listen", address, "--backend", "mooncake")
	p, err := process.Start(ctx, cmd, process.Options{Timeout: m.o.Timeout})
	if err != nil {
		return err
	}
	m.hitlineServers = append(m.hitlineServers, p)
	m.hitlines[side] = address
	return nil
}
