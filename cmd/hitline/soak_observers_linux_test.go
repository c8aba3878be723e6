package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/status"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/client"
	routerclient "github.com/hitline/hitline/router/client"
)

const (
	soakEngines = 4
	soakPrompt  = 8 // blocks of a prompt of the account
)

// soakObservers use a server beside those who look up: somebody has the status page open, a router asks who holds what, and
// one client, alone in a pool, adds up the tokens that it asks for.
type soakObservers struct {
	s       *soakTest
	http    http.Client
	router  string
	engines []*eventstest.Publisher
	prompt  [][]byte // engine i has its first 10 (i+1) blocks

	accounting sync.Mutex   // held while a prompt is asked for, and by whoever ends the server meanwhile
	accounted  atomic.Int64 // tokens that the server was asked for

	pages, queries, accounts atomic.Int64
}

func newSoakObservers(s *soakTest) *soakObservers {
	o := &soakObservers{s: s, http: http.Client{Timeout: storetest.Timeout}, router: storetest.FreeAddr(s), prompt: eventKeys("prompt", 10*soakEngines)}
	for i := range soakEngines {
		engine := eventstest.New(s)
		engine.Publish(false, eventstest.Stored(nil, o.prompt[:10*(i+1)]...))
		o.engines = append(o.engines, engine)
	}
	return o
}

func (o *soakObservers) String() string {
	return fmt.Sprintf("%d pages, %d answers of the router, %d accounts", o.pages.Load(), o.queries.Load(), o.accounts.Load())
}

// config returns the part of the configuration that they need.
func (o *soakObservers) config() string {
	text := fmt.Sprintf("pools: {account: {vllm: '0.33.0', model_name: account}}\nrouter:\n  listen: %s\n  models: [{name: m}]\n  sources:\n", o.router)
	for i, e := range o.engines {
		text += fmt.Sprintf("    - {instance_id: engine-%d, endpoint: '%s', replay_endpoint: '%s'}\n", i, e.Endpoint, e.Replay)
	}
	return text
}

// start starts all of them, until ctx ends.
func (o *soakObservers) start(ctx context.Context, running *sync.WaitGroup) {
	for pause, observe := range map[time.Duration]func(context.Context){
		time.Second: o.look, 100 * time.Millisecond: o.query, 20 * time.Millisecond: o.account(ctx),
	} {
		running.Go(func() {
			for ctx.Err() == nil {
				observe(ctx)
				time.Sleep(pause)
			}
		})
	}
}

// look gets the page and what its script gets. A server that is just replaced has neither.
func (o *soakObservers) look(context.Context) {
	for _, path := range []string{"/", "/status"} {
		reply, err := o.http.Get("http://" + o.s.metrics + path)
		if err != nil {
			return
		}
		_, err = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close()
		if err == nil && reply.StatusCode != http.StatusOK {
			o.s.Errorf("%s: %s", path, reply.Status)
		}
		o.pages.Add(1)
	}
}

// query checks that no engine is said to hold more than it does, nor, once all are followed, less.
func (o *soakObservers) query(ctx context.Context) {
	c, err := routerclient.New("http://" + o.router)
	require.NoError(o.s, err)
	defer c.Close()
	answer, err := c.Query(ctx, &routerclient.Query{Prompt: routerclient.Prompt{Hashes: coordinator.NewHashes(bytes.Join(o.prompt, nil), 32)}})
	if err != nil {
		return // it is just replaced
	}
	for i := range o.engines {
		name := fmt.Sprint("engine-", i)
		has, _ := answer.Prefix(name, routerclient.AllRanks)
		if want := int64(10 * (i + 1) * soakBlock); has > want || has < want && len(answer.Unsure[name]) == 0 {
			o.s.Errorf("%s has %d of %d tokens: %s", name, has, want, answer.JSON)
		}
	}
	o.queries.Add(1)
}

// account returns a function that looks up a prompt which nobody has asked for.
func (o *soakObservers) account(ctx context.Context) func(context.Context) {
	c, err := client.Dial(ctx, "tcp://"+o.s.address, client.WithTimeout(storetest.Timeout), client.WithPoolName("account"))
	require.NoError(o.s, err)
	o.s.Cleanup(func() { _ = c.Close() })
	return func(ctx context.Context) {
		o.s.mu.RLock()
		defer o.s.mu.RUnlock()
		o.accounting.Lock()
		defer o.accounting.Unlock()
		if !o.s.calm {
			return
		}
		prompt := make([]byte, soakPrompt*32)
		for i := range prompt {
			prompt[i] = byte(rand.Uint32())
		}
		const tokens = soakPrompt*soakBlock + 1
		if _, err := c.Lookup(context.WithoutCancel(ctx), tokens, coordinator.NewHashes(prompt, 32)); err != nil {
			o.s.wrong.Add(1)
			o.s.Errorf("account: %v", err)
		}
		o.accounted.Add(tokens)
	}
}

// checkAccount checks that the server has a place for each token that it was asked for. Nobody asks.
func (o *soakObservers) checkAccount() {
	storetest.Eventually(o.s, "each token has a place", func() bool {
		reply, err := o.http.Get("http://" + o.s.metrics + "/status")
		require.NoError(o.s, err)
		defer reply.Body.Close()
		var told status.Status
		require.NoError(o.s, json.NewDecoder(reply.Body).Decode(&told))
		for _, pool := range told.Pools {
			if pool.Name == "account" && pool.Stat.PoolTokens != nil && pool.Stat.Open == 0 {
				sum := int64(0)
				for _, n := range pool.Stat.Tokens {
					sum += n
				}
				require.Zero(o.s, pool.Stat.NotCounted)
				require.Equal(o.s, o.accounted.Load(), sum)
				return true
			}
		}
		return o.accounted.Load() == 0
	})
	o.accounts.Add(1)
}
