package mooncake

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/requesterror"
)

const (
	// leaseTimeout bounds the question for the lease, which nobody waits for.
	leaseTimeout = time.Second
	// maxReplicas bounds the reply to it, in bytes: some hundred a copy of the block.
	maxReplicas = 64 << 10
	// maxLease bounds the lease that a master states, so that it can be computed with.
	maxLease = 24 * time.Hour
)

// Lease returns Config.Lease and what the leader has stated.
func (c *Client) Lease() backend.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := backend.Lease{Duration: c.process.leaseOr(DefaultLease), Stated: c.process.lease}
	if c.cfg.Lease > 0 {
		l.Duration = c.cfg.Lease
	}
	return l
}

// learn keeps a key that has just been found, and asks the leader by it in the background for its lease, once a
// generation.
func (c *Client) learn(keys backend.Keys, answers []int) {
	found := slices.Index(answers, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordFound(keys, found)
	if found < 0 || c.process.asked || c.closed {
		return
	}
	c.process.asked = true
	generation := c.Generation()
	key := string(keys.Append(nil, found))
	c.calls.Go(func() {
		if unknown := c.askLease(key, generation); unknown != nil { // a handler that blocks delays no call
			c.cfg.Logger.Warn("the Mooncake master does not say how long it leases a found block", "error", unknown)
		}
	})
}

// askLease asks for the lease by a key and records the answer. It returns why the reply is not
// understood, once a leader. It waits for its turn among the calls. After any other error a later call asks again.
func (c *Client) askLease(key string, generation uint64) error {
	ctx, cancel := context.WithTimeout(c.ctx, leaseTimeout)
	defer cancel()
	var lease time.Duration
	var unknown error // leaves the connection as it is
	err := c.acquire(ctx, false)
	if err == nil {
		err = c.withConn(ctx, func(cn *conn) (err error) {
			defer requesterror.Recover(&err)
			generation = c.Generation()
			lease, unknown, err = cn.lease(key, c.cfg.Tenant)
			return err
		})
		c.release(false)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Generation() != generation {
		return nil
	}
	answered := err == nil && !errors.Is(unknown, errNotFound)
	if c.process.asked = answered; answered {
		c.process.lease = lease
		if unknown == nil {
			c.process.lease = max(1, lease) // a lease of nothing is stated, too
		}
	}
	if !answered || unknown == nil || c.leaseLogged == c.term {
		return nil
	}
	c.leaseLogged = c.term
	return unknown
}

// StatedLease asks the leader how long it leases a found block, by a key that is in the store. The master
// leases its block again.
func (c *Client) StatedLease(ctx context.Context, key string) (lease time.Duration, err error) {
	if err := c.beginCall(); err != nil {
		return 0, err
	}
	defer c.calls.Done()
	var unknown error
	err = c.withOwnConn(ctx, func(cn *conn) (err error) {
		lease, unknown, err = cn.lease(key, c.cfg.Tenant)
		return err
	})
	return lease, c.explainClosed(cmp.Or(err, unknown))
}

// errNotFound means that the key by which the lease is asked for is gone.
var errNotFound = errors.New("the key is gone")

// lease asks where the block of a key is, which leases it again, and returns the lease that the
// reply states. unknown is why it states none, after which the connection can be used.
func (c *conn) lease(key, tenant string) (lease time.Duration, unknown, err error) {
	if c.form != FormTenant {
		return 0, errors.New("its release says none"), nil
	}
	c.beginRequest(fnGetReplicaList)
	c.out = appendKeyTenant(c.out, key, tenant)
	body, err := c.roundTrip(maxReplicas)
	if rpc := (*rpcError)(nil); errors.As(err, &rpc) {
		return 0, err, nil
	}
	if err != nil {
		return 0, nil, err
	}
	lease, unknown = parseLease(body)
	return lease, unknown, nil
}

// appendKeyTenant appends the body of a GetReplicaList request.
func appendKeyTenant(dst []byte, key, tenant string) []byte {
	width := widthOf(max(len(key), len(tenant)))
	dst = appendHead(dst, typeKeyTenant, width)
	dst = append(appendLen(dst, width, len(key)), key...)
	return append(appendLen(dst, width, len(tenant)), tenant...)
}

// parseLease decodes a reply of GetReplicaList. It returns the lease that it states.
func parseLease(body []byte) (time.Duration, error) {
	typ := typeReplicas
	if len(body) >= 4 && le.Uint32(body)&^hasMeta == typeReplicasOld.code {
		typ = typeReplicasOld
	}
	r := newReader(body, typ)
	if !r.bool() {
		code := r.storeError()
		if err := r.end(); err != nil {
			return 0, err
		}
		if code == storeNotFound {
			return 0, errNotFound
		}
		return 0, notServing(code)
	}
	for n := r.length(); n > 0 && r.err == nil; n-- {
		r.skipReplica()
	}
	ms := r.uint(8)
	if typ.code == typeReplicas.code && r.bool() {
		r.uint(8)
	}
	if err := r.end(); err != nil {
		return 0, err
	}
	return time.Duration(min(ms, uint64(maxLease/time.Millisecond))) * time.Millisecond, nil
}

// skipReplica reads a replica: see replicasStart.
func (r *reader) skipReplica() {
	r.uint(8)
	switch place := r.uint(1); place {
	case 0, 1:
		r.bytes(16)
		r.bytes(r.length())
		r.bytes(r.length())
	case 2:
		r.bytes(r.length())
		r.uint(8)
	case 3:
		r.bytes(24)
		r.bytes(r.length())
	case 4:
		r.bytes(r.length())
		r.bytes(28)
	default:
		r.fail("place %d of a replica", place)
	}
	r.uint(4)
}
