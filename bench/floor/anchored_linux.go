package floor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
)

// DialBlocking is a dialer for the client that an Anchorer is made of: like the other
// connections here, it blocks in the kernel, without telling the Go scheduler, for at
// most timeout a call.
func DialBlocking(timeout time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	return wire.Dialer(timeout)
}

// anchoredPeer asks hitline for the requests of a workload by anchors. Not safe
// for concurrent use.
type anchoredPeer struct {
	conn   Anchorer
	load   *chainSet
	order  []int
	tokens uint32 // of a prompt
	asked  int
	wrong  int
}

// roundTrip asks for the next prompt and returns how long the answer took, and
// whether the prompt leaves what is stored.
func (p *anchoredPeer) roundTrip(ctx context.Context) (took time.Duration, left bool, err error) {
	at := p.order[p.asked%len(p.order)]
	p.asked++
	start := time.Now() // the connection bounds its calls: a context with a deadline would wake the runtime's poller
	hit, err := p.conn.Lookup(ctx, p.tokens, p.load.hashes(at), hashLen)
	took = time.Since(start)
	if err != nil {
		return 0, false, fmt.Errorf("%w: lookup %d by anchors: %w", measure.ErrLost, p.asked, err)
	}
	if hit != p.load.tokens(at) {
		p.wrong++
	}
	return took, p.load.left[at], nil
}

// anchoredRounds makes the figures of lookups by anchors.
func (m *meter) anchoredRounds(ctx context.Context) error {
	var floor, hitline, hits, misses times
	var cpu [2][]float64
	for round := range m.o.Rounds + 1 {
		before, err := m.cpuTimes()
		if err != nil {
			return err
		}
		read, whole, left, err := m.anchoredRound(ctx)
		if err != nil {
			return err
		}
		after, err := m.cpuTimes()
		if err != nil {
			return err
		}
		m.o.OnStep("round trips", round+1, m.o.Rounds+1)
		if round == 0 {
			continue // in which lookups confirm what was stored
		}
		for server := range after {
			cpu[server] = append(cpu[server], measure.Micros((after[server]-before[server])/time.Duration(len(read))))
		}
		floor.add(read)
		hits.add(whole)
		misses.add(left)
		hitline.add(slices.Concat(whole, left))
	}
	m.report.setTimes(&floor, &hitline)
	m.setCPU(cpu)
	m.report.Anchored = newAnchoredReport(&floor, &hits, &misses)
	return nil
}

// anchoredRound asks both servers in turn.
func (m *meter) anchoredRound(ctx context.Context) (floor, whole, left []time.Duration, err error) {
	n := m.report.Requests
	err = m.inTurn(ctx, n, min(64, (n+7)/8), func(server, batch int) error {
		for range batch {
			if server == 0 {
				took, err := m.peers[0].roundTrip()
				if err != nil {
					return err
				}
				floor = append(floor, took)
				continue
			}
			took, gone, err := m.anchored.roundTrip(ctx)
			if err != nil {
				return err
			}
			if gone {
				left = append(left, took)
			} else {
				whole = append(whole, took)
			}
		}
		return nil
	})
	if err == nil && (len(whole) == 0 || len(left) == 0) {
		err = errors.New("floor: too few requests a round to tell hits and misses apart")
	}
	return floor, whole, left, err
}
