// Renewals simulates what lookups that begin where an engine's own cache ends cost a store that evicts by
// lease, and what renewing gives back. It prints a table:
//
//	go run ./bench/renewals TRACE
//
// It knows no server: engines, their saver and the store are models of [store] and [run].
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hitline/hitline/bench/workload"
)

func main() {
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: go run ./bench/renewals TRACE") }
	flag.Parse() // -h ends it with status 0
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	requests, err := read(workload.Trace(flag.Arg(0)))
	if err == nil {
		err = table(os.Stdout, requests)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "renewals:", err)
		os.Exit(1)
	}
}

// request is a prompt: the ids of its whole blocks, each of which stands for those before it, too.
type request struct {
	at     time.Duration
	tokens int64
	ids    []uint64
	useful int // blocks that can be loaded: the last token is computed
}

func read(trace workload.Trace) (requests []request, err error) {
	err = trace.Requests(context.Background(), workload.BlockTokens, 0, true, func(r workload.Request) error {
		whole := min(int(r.Tokens/workload.BlockTokens), len(r.IDs))
		useful := min(max(int((r.Tokens-1)/workload.BlockTokens), 0), whole)
		requests = append(requests, request{at: r.At, tokens: r.Tokens, ids: append([]uint64(nil), r.IDs[:whole]...), useful: useful})
		return nil
	})
	return requests, err
}

// numBlocks returns how many different blocks the requests have.
func numBlocks(requests []request) int {
	ids := map[uint64]bool{}
	for _, r := range requests {
		for _, id := range r.ids {
			ids[id] = true
		}
	}
	return len(ids)
}

// cell is one setting of a simulation.
type cell struct {
	sticky   bool // an engine serves all prompts with the same second block, otherwise they take turns
	consumer bool // engines load only, and a producer puts what they lack; otherwise they save
	engines  int
	part     int // the store has room for one in so many of all blocks
	local    bool
	renew    bool
}

// result is what a simulation has counted.
type result struct {
	loaded                   int64 // tokens that engines have loaded from the store
	lookups, renewals, saves int64 // keys that the master was asked for
	puts                     int64
}

func (r result) asked() int64 { return r.lookups + r.renewals + r.saves }

const (
	// lease is the default of a master.
	lease = 10 * time.Second
	// saveTokens is the size of an engine's block: a request that computes none does not save.
	saveTokens = 16
	// ownPart is which part of all blocks the caches of all engines hold together.
	ownPart = 10
)

// run simulates a cell. A request is looked up when it comes, its renewal follows, and then its save.
func run(c cell, requests []request, blocks int) (sum result) {
	s := newStore(blocks / c.part)
	renewed := map[uint64]time.Duration{} // when hitline asked for a block last
	engines := make([]*cache, c.engines)
	for i := range engines {
		engines[i] = newCache(blocks / ownPart / c.engines)
	}
	for n, r := range requests {
		engine := engines[c.engineOf(n, r)]
		held := min(engine.held(r.ids), r.useful)
		start, end := held, 0
		if !c.local {
			start = 0
		}
		s.now = r.at
		for i, id := range r.ids[start:r.useful] {
			if found := s.exists(id); found {
				renewed[id] = r.at
				if end == i {
					end++
				}
			}
		}
		sum.lookups += int64(r.useful - start)
		sum.loaded += int64(max(start+end-held, 0)) * workload.BlockTokens
		if c.renew {
			sum.renewals += s.renew(r.ids[:start], renewed)
		}
		if computed := r.tokens - int64(max(start+end, held))*workload.BlockTokens; computed >= saveTokens {
			sum.save(s, r.ids, c.consumer)
		}
		engine.use(r.ids)
	}
	return sum
}

// engineOf returns the engine of request n.
func (c cell) engineOf(n int, r request) int {
	if c.sticky && len(r.ids) > 1 { // all prompts of the trace have the same first block
		return int(r.ids[1] % uint64(c.engines))
	}
	return n % c.engines
}

// save asks the store for all blocks of a prompt and puts those that are missing. byProducer leaves out
// the question: it leases nothing.
func (sum *result) save(s *store, ids []uint64, byProducer bool) {
	for _, id := range ids {
		if byProducer && s.has(id) || !byProducer && s.exists(id) {
			continue
		}
		if s.put(id) {
			sum.puts++
		}
	}
	if !byProducer {
		sum.saves += int64(len(ids))
	}
}

// renew asks the store for the blocks that were not asked for within a lease, and returns how many.
func (s *store) renew(ids []uint64, renewed map[uint64]time.Duration) (asked int64) {
	for _, id := range ids {
		if at, ok := renewed[id]; ok && s.now-at < lease {
			continue
		}
		renewed[id] = s.now
		s.exists(id)
		asked++
	}
	return asked
}

// table prints a line for each setting. Percentages are of whole lookups.
func table(out io.Writer, requests []request) error {
	blocks := numBlocks(requests)
	fmt.Fprintf(out, "%d requests, %d different blocks of %d tokens\n\n", len(requests), blocks, workload.BlockTokens)
	fmt.Fprintln(out, "| engines save | prompts | engines | store | loaded, million tokens | local | renewed "+
		"| keys asked, thousands | of lookups | local | of lookups | renewed | of renewals |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, consumer := range []bool{false, true} {
		for _, sticky := range []bool{false, true} {
			for _, engines := range []int{4, 8} {
				for _, part := range []int{10, 3, 1} {
					c := cell{consumer: consumer, sticky: sticky, engines: engines, part: part}
					if _, err := fmt.Fprintln(out, c.line(requests, blocks)); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// line returns a line of the table.
func (c cell) line(requests []request, blocks int) string {
	whole := run(c, requests, blocks)
	c.local = true
	local := run(c, requests, blocks)
	c.renew = true
	renewed := run(c, requests, blocks)
	percent := func(n, of int64) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(of, 1))) }
	role, routing, size := "yes", "in turn", "all"
	if c.consumer {
		role = "no"
	}
	if c.sticky {
		routing = "sticky"
	}
	if c.part > 1 {
		size = fmt.Sprintf("1/%d", c.part)
	}
	return fmt.Sprintf("| %s | %s | %d | %s | %.1f | %s | %s | %d | %d | %d | %d | %d | %d |", role, routing, c.engines, size,
		float64(whole.loaded)/1e6, percent(local.loaded, whole.loaded), percent(renewed.loaded, whole.loaded),
		whole.asked()/1000, whole.lookups/1000, local.asked()/1000, local.lookups/1000, renewed.asked()/1000, renewed.renewals/1000)
}
