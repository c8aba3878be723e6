package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

const (
	replaceRelease = "0.33.0"
	replaceHashes  = 64
	replaceBlock   = 16
)

// outcome is what came of a lookup.
type outcome struct {
	client string
	due    time.Time
	took   time.Duration // from when it was due
	waited time.Duration // in which a Python engine did nothing else
	kind   outcomeKind
	why    string // unless it is right
}

type outcomeKind uint8

const (
	answeredRight outcomeKind = iota
	answeredLost              // with an error
	answeredWrong
	answeredZero
	numOutcomes
)

// replaceLoad is clients that look up at a steady rate, each prompt another number of blocks of one chain, which is stored.
type replaceLoad struct {
	t       *testing.T
	scale   replaceScale
	chain   []byte
	end     context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	outcomes []outcome
	latest   map[string]time.Time // when the latest lookup was due that was answered, by client
}

// replaceClients are the kinds of clients. Those with async do not wait for their lookups.
var replaceClients = []string{"Go", "Go async", "Python", "Python async"}

// startLoad stores the chain, and starts all clients of a list of addresses.
func startLoad(t *testing.T, addresses string, secure *replaceTLS, scale replaceScale) *replaceLoad {
	ctx, end := context.WithCancel(t.Context())
	l := &replaceLoad{t: t, scale: scale, chain: lookuptest.Chain("replaced", replaceHashes, 32), end: end, latest: map[string]time.Time{}}
	t.Cleanup(l.stop)
	options := []client.Option{client.WithTimeout(scale.timeout), client.WithPoolName("")}
	if secure != nil {
		options = append(options, client.WithTLS(secure.client))
	}
	for i := range scale.goClients {
		c, err := client.Dial(ctx, addresses, options...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		if i == 0 {
			require.NoError(t, c.Store(ctx, coordinator.GroupRank{}, coordinator.NewHashes(l.chain, 32)))
		}
		if i%2 == 0 {
			l.running.Go(func() { l.block(ctx, c) })
		} else {
			l.running.Go(func() { l.poll(ctx, c.Async()) })
		}
	}
	for _, flags := range [][]string{nil, {"--non-block"}} {
		l.startPython(ctx, addresses, secure, flags)
	}
	return l
}

// stop ends the clients, once all their lookups are answered.
func (l *replaceLoad) stop() {
	l.end()
	l.running.Wait()
}

// awaitAnswers waits until each kind of client has had an answer to a lookup that is due from now on.
func (l *replaceLoad) awaitAnswers() {
	now := time.Now()
	for _, name := range replaceClients {
		storetest.Eventually(l.t, name+" has an answer", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.latest[name].After(now)
		})
	}
}

func (l *replaceLoad) add(o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes = append(l.outcomes, o)
	if l.latest[o.client].Before(o.due) {
		l.latest[o.client] = o.due
	}
}

// answered adds what came of a lookup of a number of blocks.
func (l *replaceLoad) answered(name string, due time.Time, blocks int, hit api.Hit, err error) {
	o := outcome{client: name, due: due, took: time.Since(due)}
	switch want := int64(blocks * replaceBlock); {
	case err != nil:
		o.kind, o.why = answeredLost, err.Error()
	case hit.Tokens == 0:
		o.kind, o.why = answeredZero, "without an error"
	case hit.Tokens != want:
		o.kind, o.why = answeredWrong, fmt.Sprintf("%d tokens, not %d", hit.Tokens, want)
	}
	l.add(o)
}

// prompt returns the n-th prompt.
func (l *replaceLoad) prompt(n int) (blocks int, numTokens int64, hashes coordinator.Hashes) {
	blocks = 1 + n%replaceHashes
	return blocks, int64(blocks*replaceBlock + 1), coordinator.NewHashes(l.chain[:blocks*32], 32)
}

// block has a client wait for each lookup, which does not delay the next.
func (l *replaceLoad) block(ctx context.Context, c *client.Client) {
	var asking sync.WaitGroup
	defer asking.Wait()
	due := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		time.Sleep(time.Until(due))
		at := due
		asking.Go(func() {
			blocks, tokens, hashes := l.prompt(n)
			hit, err := c.Lookup(context.Background(), tokens, hashes)
			l.answered("Go", at, blocks, hit, err)
		})
		due = due.Add(time.Second / time.Duration(l.scale.goRate))
	}
}

// poll has a client poll its lookups, every millisecond.
func (l *replaceLoad) poll(ctx context.Context, c *client.AsyncClient) {
	pending := map[int]time.Time{} // when each was due
	due := time.Now()
	for n := 0; ctx.Err() == nil || len(pending) > 0; time.Sleep(time.Millisecond) {
		if ctx.Err() == nil && !time.Now().Before(due) {
			pending[n] = due
			n, due = n+1, due.Add(time.Second/time.Duration(l.scale.goRate))
		}
		for i, at := range pending {
			blocks, tokens, hashes := l.prompt(i)
			if hit, ready, err := c.Poll(fmt.Sprint(i), tokens, hashes); ready {
				l.answered("Go async", at, blocks, hit, err)
				delete(pending, i)
			}
		}
	}
}

// startPython starts the engine's client of the plug-in, in a process of its own.
func (l *replaceLoad) startPython(ctx context.Context, addresses string, secure *replaceTLS, flags []string) {
	python, err := exec.LookPath("python3")
	if err != nil {
		storetest.SkipOrFail(l.t, "no python3: %v", err)
	}
	name := "Python"
	if len(flags) > 0 {
		name = "Python async"
	}
	folder, err := filepath.Abs("../../clients/python")
	require.NoError(l.t, err)
	cmd := exec.Command(python, append([]string{"-m", "tests.steady", addresses, "--rate", fmt.Sprint(l.scale.pythonRate),
		"--timeout", fmt.Sprint(l.scale.timeout.Seconds()), "--vllm", replaceRelease}, flags...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = folder, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), os.Stderr
	if secure != nil {
		cmd.Env = append(cmd.Env, "HITLINE_TLS_CA="+secure.caFile)
	}
	input, err := cmd.StdinPipe()
	require.NoError(l.t, err)
	output, err := cmd.StdoutPipe()
	require.NoError(l.t, err)
	require.NoError(l.t, cmd.Start())
	var text []string
	for hash := range slices.Chunk(l.chain, 32) {
		text = append(text, hex.EncodeToString(hash))
	}
	_, err = io.WriteString(input, strings.Join(text, " ")+"\n")
	require.NoError(l.t, err)
	context.AfterFunc(ctx, func() { _ = input.Close() })
	l.running.Go(func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			l.add(pythonOutcome(l.t, name, lines.Bytes()))
		}
		assert.NoError(l.t, cmd.Wait())
	})
}

// pythonOutcome returns what a line of tests/steady.py says.
func pythonOutcome(t *testing.T, name string, line []byte) outcome {
	var fields [4]*float64
	assert.NoError(t, json.Unmarshal(line, &fields), "%s", line)
	o := outcome{client: name}
	switch {
	case fields[0] == nil || fields[1] == nil || fields[2] == nil:
		assert.Fail(t, "a line without times", "%s", line)
		return o
	case fields[3] == nil:
		o.kind, o.why = answeredZero, "see its log"
	case *fields[3] != 0:
		o.kind, o.why = answeredWrong, fmt.Sprintf("%v tokens more", *fields[3])
	}
	o.waited = time.Duration(*fields[2] * float64(time.Second))
	o.due = time.UnixMicro(int64(*fields[0] * 1e6))
	o.took = time.Duration(*fields[1] * float64(time.Second))
	return o
}

// check requires that all lookups were answered right, but for those that a way allows to fail, and logs what was counted.
func (l *replaceLoad) check(w replaceWay, changes []*replaceChange) {
	for _, name := range replaceClients {
		var counts [numOutcomes]int
		for _, o := range l.outcomes {
			if o.client != name {
				continue
			}
			counts[o.kind]++
			allowed := o.kind == answeredRight || o.kind != answeredWrong && w.fails != nil &&
				slices.ContainsFunc(changes, func(c *replaceChange) bool { return w.fails(&o, c) })
			assert.True(l.t, allowed, "%s: a lookup due at %v was answered after %v: %s", name, o.due, o.took, o.why)
		}
		assert.NotZero(l.t, counts[answeredRight], name)
		l.t.Logf("| %s | %s | %d | %d lost | %d wrong | %d zeros | p99 %v |", w.name, name, counts[answeredRight], counts[answeredLost],
			counts[answeredWrong], counts[answeredZero], l.p99s(changes, name))
	}
	var gaps []time.Duration
	for _, c := range changes {
		gaps = append(gaps, c.end.Sub(c.begin).Round(time.Millisecond))
	}
	all := l.p99s(changes, "")
	l.t.Logf("| %s | all | p99 %v | changes took %v", w.name, all, gaps)
	if l.scale.measured && w.p99 > 0 {
		assert.LessOrEqual(l.t, slices.Max(all), w.p99, "p99 of the second of a change")
	}
}

// p99s returns the 99th percentile of what lookups took that were due in the second from each change on. name is a client,
// "" all.
func (l *replaceLoad) p99s(changes []*replaceChange, name string) (p99s []time.Duration) {
	for _, c := range changes {
		var took []time.Duration
		for _, o := range l.outcomes {
			if (name == "" || name == o.client) && !o.due.Before(c.begin) && o.due.Before(c.begin.Add(time.Second)) {
				took = append(took, o.took)
			}
		}
		slices.Sort(took)
		p99s = append(p99s, took[(len(took)*99+99)/100-1].Round(time.Millisecond/10))
	}
	return p99s
}

// waited returns how long an engine did nothing but look up, for lookups that were due in a time.
func (l *replaceLoad) waited(name string, from, to time.Time) (total time.Duration) {
	for _, o := range l.outcomes {
		if o.client == name && o.due.After(from) && o.due.Before(to) {
			total += o.waited
		}
	}
	return total
}
