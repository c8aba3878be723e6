package floor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
)

// Run starts both servers, fills the index, measures, and stops them. A report
// with wrong answers is not an error. Not safe for concurrent use: it pins the
// threads of this process, until it returns.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	if o.Seed == 0 {
		o.Seed = measure.RandomSeed()
	}
	setup := measure.NewSetup(o.Seed)
	allowed, err := process.Cores()
	if err != nil {
		return Report{}, fmt.Errorf("floor: %w", err)
	}
	cores, err := chooseCores(allowed, o.ClientCore, o.ServerCore)
	if err != nil {
		return Report{}, err
	}
	cache := lastLevelCache(os.DirFS("/sys/devices/system/cpu/cpu0/cache"))
	chains := numChains(o.Hashes, o.Entries, capped(cache, o.MaxCache))
	m := &meter{o: o, cores: cores}
	m.report = Report{
		Setup: setup, Dialect: "raw", Connect: o.Connect, Hashes: o.Hashes, Entries: chains * o.Hashes, Chains: chains,
		Rounds: o.Rounds, Requests: o.requests(), Pipeline: o.Pipeline,
		Cores: cores, LLC: cache, WorkingSet: int64(chains) * int64(o.Hashes) * 2 * hashLen,
	}
	if cores == nil {
		m.report.Cores = []int{}
	}
	m.notes()
	m.load = newWorkload(o.Seed, chains, o.Hashes, o.HashTokens)
	defer m.stop()
	if err := m.start(ctx); err != nil {
		return Report{}, err
	}
	if len(cores) > 0 {
		defer func() { _ = process.Pin(allowed...) }() // it was allowed before
	}
	return m.report, m.measure(ctx)
}

// chooseCores returns the cores of the client and of the servers, given as numbers
// among the allowed ones, from 0; nil if there is only one to choose from.
func chooseCores(allowed []int, client, servers int) ([]int, error) {
	if len(allowed) < 2 {
		return nil, nil
	}
	if most := max(client, servers); most >= len(allowed) {
		return nil, fmt.Errorf("%w: core %d of %d; they count from 0", measure.ErrOptions, most, len(allowed))
	}
	return []int{allowed[client], allowed[servers]}, nil
}

// capped returns the cache to exceed, which is most if the machine's is unknown.
func capped(cache, most int64) int64 {
	if cache == 0 {
		return most
	}
	return min(cache, most)
}

// meter is one call of Run.
type meter struct {
	o      Options
	cores  []int // of the client and the servers; nil: not pinned
	load   *chainSet
	report Report

	floor, hitline *process.Process // hitline is nil with Connect
	peers          [2]*peer         // of the floor server and of hitline
	anchored       *anchoredPeer    // in place of the second; nil without
	sockets        []wire.Socket
}

// notes says what limits the meaning of the figures.
func (m *meter) notes() {
	if m.cores == nil {
		m.o.OnNote("only one core to run on: nothing is pinned, and the ratio means little")
	}
	if m.o.Connect != "" {
		m.o.OnNote(m.o.Connect + " was not started here: it is not pinned, and its idle CPU time is not known")
	}
	if cache := m.report.LLC; cache > m.o.MaxCache {
		m.o.OnNote(fmt.Sprintf("the machine reports %d MiB of last-level cache; the chains exceed %d MiB", cache>>20, m.o.MaxCache>>20))
	}
}

// start starts the servers, fills the index and connects.
func (m *meter) start(ctx context.Context) error {
	var err error
	argv := append(slices.Clone(m.o.FloorServer), strconv.Itoa(m.load.size))
	if m.floor, err = m.launch(ctx, exec.Command(argv[0], argv[1:]...)); err != nil {
		return err
	}
	addr := m.o.Connect
	if addr == "" {
		if m.hitline, err = m.launch(ctx, m.serve()); err != nil {
			return err
		}
		addr = m.hitline.Addr()
	}
	if err := m.fill(ctx, addr); err != nil {
		return err
	}
	if m.o.Anchored {
		m.load.leave(m.o.HashTokens)
	} else {
		m.load.cut(m.o.HashTokens)
	}
	order := m.load.order()
	for i, server := range []struct {
		addr string
		peer func(wire.Socket, *chainSet, []int) *peer
	}{{m.floor.Addr(), floorPeer}, {addr, hitlinePeer}} {
		at := wire.Server{Address: server.addr, Timeout: m.o.Timeout}
		if server.addr == m.o.Connect {
			at.Dialect, at.Token = wire.Raw, m.o.Token
		}
		control, err := wire.Dial(ctx, at)
		if err != nil {
			return err
		}
		s, err := control.Socket(wire.Wait{Bound: m.o.Timeout})
		if err != nil {
			return err
		}
		m.sockets = append(m.sockets, s)
		m.peers[i] = server.peer(s, m.load, order)
	}
	return nil
}

// launch starts a server on the servers' core.
func (m *meter) launch(ctx context.Context, cmd *exec.Cmd) (*process.Process, error) {
	o := process.Options{Timeout: m.o.Timeout}
	if m.cores != nil {
		o.Cores = m.cores[1:]
	}
	p, err := process.Start(ctx, cmd, o)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// serve returns the command that runs hitline.
func (m *meter) serve() *exec.Cmd {
	return process.Hitline(m.o.Hitline, m.o.HashTokens, process.HitlineBound(m.report.Entries))
}

// fill stores all chains.
func (m *meter) fill(ctx context.Context, addr string) error {
	dialCtx, cancel := context.WithTimeout(ctx, m.o.Timeout)
	defer cancel()
	storer, err := m.o.Dial(dialCtx, addr)
	if err != nil {
		return err
	}
	store := storer.Store
	if m.o.Anchored {
		conn, ok := storer.(Anchorer)
		if !ok {
			return errors.New("floor: Options.Dial makes no Anchorer")
		}
		store = conn.StoreChain
		m.anchored = &anchoredPeer{
			conn: conn, load: m.load, order: m.load.order(), asked: m.load.len() / 2,
			tokens: uint32(m.o.Hashes * m.o.HashTokens),
		}
	} else {
		defer storer.Close()
	}
	for i := range m.load.len() {
		storeCtx, cancel := context.WithTimeout(ctx, m.o.Timeout)
		err := store(storeCtx, m.load.hashes(i), hashLen)
		cancel()
		if errors.Is(err, measure.ErrRefused) {
			return fmt.Errorf("storing chain %d: %w", i, err)
		} else if err != nil {
			return fmt.Errorf("%w: storing chain %d: %w", measure.ErrLost, i, err)
		}
		m.o.OnStep("fill", i+1, m.load.len())
	}
	return nil
}

// stop closes what start has opened, however far it got.
func (m *meter) stop() {
	if m.anchored != nil {
		_ = m.anchored.conn.Close() // nobody waits on it
	}
	for _, s := range m.sockets {
		s.Close()
	}
	for _, p := range []*process.Process{m.floor, m.hitline} {
		if p != nil {
			p.Stop()
		}
	}
}

// measure runs all rounds on a thread of its own core.
func (m *meter) measure(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The goroutine that is told of signals needs a place to run while this one is
	// blocked in a system call that the scheduler does not know of.
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	if m.cores != nil {
		if err := process.Pin(m.cores[0]); err != nil {
			return fmt.Errorf("floor: %w", err)
		}
	}
	defer context.AfterFunc(ctx, func() {
		for _, s := range m.sockets {
			s.Shutdown()
		}
	})()
	rounds := m.rounds
	if m.o.Anchored {
		rounds = m.anchoredRounds
	}
	err := rounds(ctx)
	m.report.Wrong = m.peers[0].wrong + m.peers[1].wrong
	if m.anchored != nil {
		m.report.Wrong += m.anchored.wrong
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil && m.hitline != nil {
		m.report.IdleCPU, err = idleCPU(ctx, m.hitline)
	}
	return err
}

// rounds makes the figures of the report.
func (m *meter) rounds(ctx context.Context) error {
	var floor, hitline times
	var cpu [2][]float64
	for round := range m.o.Rounds + 1 {
		if err := m.roundTrips(ctx, round > 0, [2]*times{&floor, &hitline}, &cpu); err != nil {
			return err
		}
		m.o.OnStep("round trips", round+1, m.o.Rounds+1)
	}
	m.report.setTimes(&floor, &hitline)
	m.setCPU(cpu)
	if m.o.Pipeline == 0 {
		return nil
	}
	var rates [2][]float64
	for round := range m.o.Rounds + 1 {
		if err := m.streams(ctx, round > 0, &rates); err != nil {
			return err
		}
		m.o.OnStep("pipelined", round+1, m.o.Rounds+1)
	}
	r := &m.report
	r.FloorRPS, r.HitlineRPS = measure.Median(rates[0]), measure.Median(rates[1])
	r.RPSRatio, r.RPSRatioMin, r.RPSRatioMax = ratio(rates[0], rates[1])
	return nil
}

// setCPU fills in the CPU time a request, of which each round has one.
func (m *meter) setCPU(cpu [2][]float64) {
	m.report.FloorCPUus = measure.Median(cpu[0])
	if m.hitline != nil {
		used := measure.Median(cpu[1])
		m.report.HitlineCPUus = &used
	}
}

// roundTrips makes one round.
func (m *meter) roundTrips(ctx context.Context, counts bool, servers [2]*times, cpu *[2][]float64) error {
	n := m.report.Requests
	var took [2][]time.Duration
	for i := range took {
		took[i] = make([]time.Duration, 0, n)
	}
	before, err := m.cpuTimes()
	if err != nil {
		return err
	}
	err = m.inTurn(ctx, n, min(64, (n+7)/8), func(server, batch int) error {
		for range batch {
			t, err := m.peers[server].roundTrip()
			if err != nil {
				return err
			}
			took[server] = append(took[server], t)
		}
		return nil
	})
	if err != nil || !counts {
		return err
	}
	after, err := m.cpuTimes()
	for server, round := range took {
		servers[server].add(round)
		cpu[server] = append(cpu[server], measure.Micros((after[server]-before[server])/time.Duration(n)))
	}
	return err
}

// cpuTimes returns what CPU time the servers have used; nothing for one that was
// not started here.
func (m *meter) cpuTimes() (used [2]time.Duration, err error) {
	for i, p := range []*process.Process{m.floor, m.hitline} {
		if p == nil {
			continue
		}
		if used[i], err = p.CPU(); err != nil {
			return used, fmt.Errorf("floor: %w", err)
		}
	}
	return used, nil
}

// streams makes one pipelined round.
func (m *meter) streams(ctx context.Context, counts bool, rates *[2][]float64) error {
	n := m.report.Requests
	var took [2]time.Duration
	err := m.inTurn(ctx, n, max(16*m.o.Pipeline, 1), func(server, batch int) error {
		t, err := m.peers[server].stream(batch, m.o.Pipeline)
		took[server] += t
		return err
	})
	if err != nil || !counts {
		return err
	}
	for server := range took {
		rates[server] = append(rates[server], measure.Round3(float64(n)/took[server].Seconds()))
	}
	return nil
}

// inTurn calls ask for n requests to each server, in batches of so many. Which
// server begins alternates.
func (m *meter) inTurn(ctx context.Context, n, batch int, ask func(server, batch int) error) error {
	for turn := 0; n > 0; turn++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		size := min(batch, n)
		for i := range 2 {
			if err := ask((turn+i)%2, size); err != nil {
				return err
			}
		}
		n -= size
	}
	return nil
}
