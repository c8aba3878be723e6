package floor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/internal/blocking"
	"github.com/hitline/hitline/bench/internal/figure"
)

// DialBlocking is a dialer for the client that an Anchorer is made of: like the other
// connections here, it blocks in the kernel, without telling the Go scheduler, for at
// most timeout a call.
func DialBlocking(timeout time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := blocking.DialConn(ctx, network, address, timeout)
		if err != nil {
			return nil, err // no nil pointer in an interface
		}
		return c, nil
	}
}

// anchoredPeer asks hitline for the requests of a workload by anchors. Not safe
// for concurrent use.
type anchoredPeer struct {
	conn   Anchorer
	load   *workload
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
		return 0, false, fmt.Errorf("%w: lookup %d by anchors: %w", ErrLost, p.asked, err)
	}
	if hit != p.load.tokens(at) {
		p.wrong++
	}
	return took, p.load.left[at], nil
}

// anchoredRounds makes the figures of lookups by anchors.
func (m *meter) anchoredRounds(ctx context.Context) error {
	var all [2]series // p50 and p99
	var cpu series
	var hits, misses [2][]float64
	for round := range m.o.Rounds + 1 {
		before, err := m.cpuTimes()
		if err != nil {
			return err
		}
		floor, whole, left, err := m.anchoredRound(ctx)
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
			cpu.add(server, figure.Micros((after[server]-before[server])/time.Duration(len(floor))))
		}
		for i, p := range []float64{50, 99} {
			all[i].add(0, figure.PercentileUs(floor, p))
			all[i].add(1, figure.PercentileUs(sorted(whole, left), p))
			hits[i] = append(hits[i], figure.PercentileUs(whole, p))
			misses[i] = append(misses[i], figure.PercentileUs(left, p))
		}
	}
	r := &m.report
	r.FloorP50us, r.HitlineP50us, r.Ratio, r.RatioMin, r.RatioMax = all[0].medians()
	r.FloorP99us, r.HitlineP99us, _, _, _ = all[1].medians()
	r.FloorCPUus = figure.Median(cpu[0])
	if m.hitline != nil {
		used := figure.Median(cpu[1])
		r.HitlineCPUus = &used
	}
	r.Anchored = &AnchoredReport{
		HitP50us: figure.Median(hits[0]), HitP99us: figure.Median(hits[1]),
		MissP50us: figure.Median(misses[0]), MissP99us: figure.Median(misses[1]),
	}
	r.Anchored.ratios(r)
	return nil
}

// anchoredRound asks both servers in turn. The times are sorted.
func (m *meter) anchoredRound(ctx context.Context) (floor, whole, left []time.Duration, err error) {
	n := m.report.Requests
	err = m.inTurn(ctx, n, min(64, (n+7)/8), func(server, slice int) error {
		for range slice {
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
	return sorted(floor), sorted(whole), sorted(left), err
}

func sorted(times ...[]time.Duration) []time.Duration {
	all := slices.Concat(times...)
	slices.Sort(all)
	return all
}
