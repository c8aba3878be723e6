package process

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/backend/mooncake"
)

// FreeAddr returns an address host:port of loopback that was free a moment ago.
func FreeAddr() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}

// MooncakeMaster returns the command that serves a Mooncake master on free ports of loopback, and
// the address of its calls.
func MooncakeMaster(path string) (cmd *exec.Cmd, addr string, err error) {
	var addrs [2]string // of its calls and of its admin port
	for i := range addrs {
		if addrs[i], err = FreeAddr(); err != nil {
			return nil, "", err
		}
	}
	_, port, _ := net.SplitHostPort(addrs[0])
	_, admin, _ := net.SplitHostPort(addrs[1])
	cmd = exec.Command(path, "--rpc_address=127.0.0.1", "--rpc_port="+port, "--metrics_host=127.0.0.1", "--metrics_port="+admin)
	return cmd, addrs[0], nil
}

// AwaitMaster waits until the master answers, also to a client that had to wait
// between two attempts to connect, and returns its version.
func AwaitMaster(ctx context.Context, client *mooncake.Client, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		info, err := client.Info(ctx)
		if err == nil {
			_, err = client.Exists(ctx, backend.KeyList{"ready"})
		}
		if err == nil {
			return info.Version, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w: %w", ctx.Err(), err) // one line
		case <-time.After(20 * time.Millisecond):
		}
	}
}
