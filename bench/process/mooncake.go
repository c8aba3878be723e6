//go:build linux

package process

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/backend/mooncake"
	"github.com/hitline/hitline/bench/measure"
)

// Mooncake is a Python's Mooncake.
type Mooncake struct {
	Master   string // path of mooncake_master
	Versions string // of Python and its packages, a line for people
}

// mooncakeVersions is a program that prints the fields of Mooncake, a line each.
const mooncakeVersions = `import importlib, importlib.metadata, os, platform, sys, mooncake.store
others = "".join(f", {name} {importlib.import_module(module).__version__}" for module, name in [a.split(":") for a in sys.argv[1:]])
found = [d for d in importlib.metadata.distributions() if (d.metadata["Name"] or "").startswith("mooncake-transfer-engine")]
print(os.path.join(os.path.dirname(mooncake.__file__), "mooncake_master"))
print(f"Python {platform.python_version()}{others}, Mooncake {found[0].version if found else 'unknown'}")`

// FindMooncake returns the Mooncake of a Python, without one an error that wraps [measure.ErrOptions]. Modules
// that the Python must have, too, are given as module:package.
func FindMooncake(ctx context.Context, python string, timeout time.Duration, modules ...string) (m Mooncake, err error) {
	cmd := exec.Command(python, append([]string{"-c", mooncakeVersions}, modules...)...)
	cmd.Env = append(Environ(), "PYTHONPATH=") // which programs that are started do not have either
	output, err := Output(ctx, cmd, timeout)
	lines := strings.Split(output, "\n")
	if err != nil || len(lines) < 2 {
		packages := "mooncake-transfer-engine-non-cuda"
		for _, module := range modules {
			_, name, _ := strings.Cut(module, ":")
			packages = name + " " + packages
		}
		return m, measure.BadOptions("%s cannot be used: %v; name with --python one in which "+
			"python3 -m pip install %s has been run", python, err, packages)
	}
	return Mooncake{Master: lines[len(lines)-2], Versions: lines[len(lines)-1]}, nil
}

// Master is a mooncake_master on loopback.
type Master struct {
	*Process
	RPC, Admin string // addresses host:port of its calls and of its admin port
}

// StartMaster starts a master and waits until it answers, at most timeout. Errors are as those of Start.
func (m Mooncake) StartMaster(ctx context.Context, timeout time.Duration) (*Master, error) {
	var addrs, ports [2]string
	for i := range addrs {
		var err error
		if addrs[i], err = FreeAddr(); err != nil {
			return nil, err
		}
		_, ports[i], _ = net.SplitHostPort(addrs[i])
	}
	cmd := exec.Command(m.Master, "--rpc_address=127.0.0.1", "--rpc_port="+ports[0], "--metrics_host=127.0.0.1", "--metrics_port="+ports[1])
	ready := func([]byte) (string, bool) { return addrs[0], true } // any line; await waits for an answer
	p, err := Start(ctx, cmd, Options{Timeout: timeout, Ready: ready})
	if err != nil {
		return nil, err
	}
	master := &Master{Process: p, RPC: addrs[0], Admin: addrs[1]}
	if err := master.await(ctx, timeout); err != nil {
		p.Stop()
		return nil, fmt.Errorf("%w: %s does not answer: %w", measure.ErrLost, m.Master, err)
	}
	return master, nil
}

// await waits until the master answers, also to a client that had to wait between two attempts
// to connect.
func (m *Master) await(ctx context.Context, timeout time.Duration) error {
	client, err := mooncake.New(mooncake.Config{Masters: []string{m.RPC}})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it always returns nil
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
