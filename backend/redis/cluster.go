package redis

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/hitline/hitline/backend"
)

// newNode creates the driver's client of a node of a cluster.
func (d *dialer) newNode(opt *goredis.Options) *goredis.Client {
	host, _, _ := net.SplitHostPort(opt.Addr)
	opt.OnConnect = d.onConnect(opt.Addr)
	node := goredis.NewClient(opt)
	node.AddHook(slotsHook{host: host, dialer: d})
	return node
}

// slotsHook reads the replies of CLUSTER SLOTS of one node. In them a null host, or an empty one,
// stands for the host that was asked. The driver fails with the first and takes the second for
// this machine. The same host is meant by a redirection that has a port alone, of which the driver
// tells the dialer no more than the port: it takes the host that has answered here last.
type slotsHook struct {
	host   string
	dialer *dialer
}

func (slotsHook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (slotsHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (h slotsHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		slots, ok := cmd.(*goredis.ClusterSlotsCmd)
		if !ok {
			return next(ctx, cmd)
		}
		raw := goredis.NewSliceCmd(ctx, slots.Args()...)
		err := next(ctx, raw)
		if err == nil {
			var parsed []goredis.ClusterSlot
			parsed, err = h.parse(raw.Val())
			slots.SetVal(parsed)
			if err == nil {
				h.dialer.processes.recordPrimaries(slotPrimaries(parsed))
			}
			if h.host != "" {
				h.dialer.host.Store(&h.host)
			}
		}
		slots.SetErr(err)
		return err
	}
}

// parse reads a reply of CLUSTER SLOTS: for each range its first and last slot and its nodes,
// for each node its host and port, and more that is not used.
func (h slotsHook) parse(reply []any) ([]goredis.ClusterSlot, error) {
	slots := make([]goredis.ClusterSlot, len(reply))
	for i, item := range reply {
		fields, _ := item.([]any)
		if len(fields) < 2 {
			return nil, badSlots(item)
		}
		first, ok := fields[0].(int64)
		last, ok2 := fields[1].(int64)
		if !ok || !ok2 {
			return nil, badSlots(item)
		}
		slots[i] = goredis.ClusterSlot{Start: int(first), End: int(last)}
		for _, node := range fields[2:] {
			parts, _ := node.([]any)
			if len(parts) < 2 {
				return nil, badSlots(node)
			}
			port, ok := parts[1].(int64)
			host, ok2 := parts[0].(string)
			if !ok || !ok2 && parts[0] != nil {
				return nil, badSlots(node)
			}
			if host == "" {
				host = h.host
			}
			id := ""
			if len(parts) > 2 {
				id, _ = parts[2].(string)
			}
			slots[i].Nodes = append(slots[i].Nodes, goredis.ClusterNode{ID: id, Addr: net.JoinHostPort(host, strconv.FormatInt(port, 10))})
		}
	}
	return slots, nil
}

// slotPrimaries returns the primary of each range of slots: its ID, or its address if it has none.
func slotPrimaries(slots []goredis.ClusterSlot) (primaries []string) {
	for _, s := range slots {
		if len(s.Nodes) > 0 {
			primaries = append(primaries, fmt.Sprintf("%d-%d:%s", s.Start, s.End, cmp.Or(s.Nodes[0].ID, s.Nodes[0].Addr)))
		}
	}
	return primaries
}

func badSlots(item any) error {
	return fmt.Errorf("%w: CLUSTER SLOTS has %.80q", backend.ErrReply, fmt.Sprint(item))
}
