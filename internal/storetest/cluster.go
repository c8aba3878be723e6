package storetest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Cluster is a cluster of three primaries, without replicas.
type Cluster struct {
	Nodes []*Redis
	dir   string
}

// StartCluster starts a cluster of three nodes with the program binary and further arguments.
// It may outlive the test: the caller calls Stop.
func StartCluster(t testing.TB, binary string, args ...string) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "hitline-redis-")
	require.NoError(t, err)
	c := &Cluster{dir: dir}
	for i := range 3 {
		nodeDir := filepath.Join(dir, strconv.Itoa(i))
		require.NoError(t, os.Mkdir(nodeDir, 0o755))
		c.Nodes = append(c.Nodes, newRedis(t, binary, nodeDir, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "1500"}, args...)...))
	}
	ctx := context.Background()
	for i, n := range c.Nodes {
		client := n.Client(t)
		require.NoError(t, client.ClusterAddSlotsRange(ctx, i*5461, min(i*5461+5460, 16383)).Err())
		require.NoError(t, client.Do(ctx, "cluster", "set-config-epoch", i+1).Err())
		require.NoError(t, client.ClusterMeet(ctx, "127.0.0.1", c.Nodes[0].Port()).Err())
	}
	last := c.Nodes[2].Client(t) // 16384 slots are not divisible by 3
	require.NoError(t, last.ClusterAddSlots(ctx, 16383).Err())
	c.WaitReady(t)
	return c
}

// WaitReady waits until every node reports the cluster state ok with three nodes.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	for _, n := range c.Nodes {
		client := n.Client(t)
		require.Eventually(t, func() bool {
			info, err := client.ClusterInfo(context.Background()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		}, Timeout, 20*time.Millisecond, "the cluster state is not ok")
	}
}

// FlushAll removes all keys of all nodes.
func (c *Cluster) FlushAll(t testing.TB) {
	t.Helper()
	for _, n := range c.Nodes {
		require.NoError(t, n.Client(t).FlushAll(context.Background()).Err())
	}
}

// URL returns the redis-cluster URL of the cluster.
func (c *Cluster) URL() string {
	return "redis-cluster://" + c.Nodes[0].Addr + "?addr=" + c.Nodes[1].Addr
}

// Stop kills all nodes and removes their files.
func (c *Cluster) Stop() {
	for _, n := range c.Nodes {
		n.Stop()
	}
	_ = os.RemoveAll(c.dir)
}
