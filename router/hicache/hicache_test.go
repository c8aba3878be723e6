package hicache

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/router"
)

// store has keys. It leaves out the answers that no longer matter.
type store map[string]bool

func (s store) Exists(_ context.Context, keys backend.Keys, _ bool) (answers []int, err error) {
	for i, key := range keys.Strings() {
		answer := 0
		if s[key] {
			answer = 1
		}
		if answers = append(answers, answer); answer == 0 && keys.End(i) <= i+1 {
			break
		}
	}
	return answers, nil
}

// failingStore does not answer.
type failingStore struct{}

func (failingStore) Exists(context.Context, backend.Keys, bool) ([]int, error) {
	return nil, errors.New("no leader")
}

// recordedCase is a case of scripts/reference/hicache.py.
type recordedCase struct {
	ID     string          `json:"id"`
	Layout json.RawMessage `json:"layout"`
	Server struct {
		PageSize int `json:"page_size"`
	} `json:"server"`
	Pages   []string `json:"pages"`
	Present []string `json:"present"`
	Hit     int      `json:"hit"` // pages; -1: unknown
}

// TestConformance asks a store as SGLang's own module does, by the layout that the module tells.
func TestConformance(t *testing.T) {
	conformance.RunKind(t, "hicache", func(c *recordedCase) conformance.Verdict {
		l, err := parseLayout(c.Layout, c.Server.PageSize)
		if l == nil != (c.Hit < 0) {
			return conformance.Differs("layout %+v, %v; recorded are %d pages", l, err, c.Hit)
		}
		if l == nil {
			return conformance.Verdict{}
		}
		blob, err := hex.DecodeString(strings.Join(c.Pages, ""))
		if err != nil {
			return conformance.Differs("%v", err)
		}
		present := store{}
		for _, key := range c.Present {
			present[key] = true
		}
		if n, err := l.peek(context.Background(), present, coordinator.NewHashes(blob, 32), len(c.Pages)); n != c.Hit || err != nil {
			return conformance.Differs("%d pages, %v; recorded are %d", n, err, c.Hit)
		}
		return conformance.Verdict{}
	})
}

// layoutOf returns what an engine with pages of 4 tokens tells.
func layoutOf(pools string) string {
	return `{"enabled": true, "backend": "mooncake", "page_size": 4, "hicache_object_layout": {"key_prefix": "m", "pools": [` + pools + `]}}`
}

const kv = `{"pool": "kv", "suffixes": ["__k"], "hit_policy": "all_pages"}`

// A prompt of many pages is asked about in several calls. One token is left to compute.
func TestPeekPrompt(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, layoutOf(kv+`, {"pool": "swa", "suffixes": ["__swa"], "hit_policy": "trailing_pages", "trailing_pages": 2}`))
	}))
	defer engine.Close()
	const pages = maxKeys + 10
	blob, keys := make([]byte, pages*32), store{}
	for i := range pages {
		blob[i*32], blob[i*32+1] = byte(i>>8), byte(i)
		hash := hex.EncodeToString(blob[i*32 : i*32+32])
		keys["m_"+hash+"__k"], keys["m_"+hash+"__swa"] = true, i != pages-3
	}
	cfg := Config{URLs: []string{engine.URL}, PageSize: 4, Store: keys, Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	p := newKnown(t, cfg)
	hashes := coordinator.NewHashes(blob, 32)
	for numTokens, want := range map[int64]int64{0: 0, 4: 0, 5: 4, 4 * pages: 4 * (pages - 3), 4*pages + 1: 4 * pages, 1 << 40: 4 * pages} {
		hit, err := p.PeekPrompt(t.Context(), numTokens, hashes)
		require.NoError(t, err)
		require.Equal(t, want, hit.Tokens, "%d tokens", numTokens)
	}
	require.Equal(t, 32, p.Pool().HashLen)

	cfg.Store = failingStore{}
	_, err := newKnown(t, cfg).PeekPrompt(t.Context(), 9, hashes)
	require.Equal(t, router.LoadableUnknown("the store does not answer: no leader"), err)
}

// newKnown returns a pool that knows the layout.
func newKnown(t *testing.T, cfg Config) *Pool {
	p := New(cfg)
	t.Cleanup(p.Close)
	storetest.Eventually(t, "the layout is known", func() bool { return p.known.Load().layout != nil })
	return p
}

// What an engine says that cannot be followed is the reason, until it says something else. While it says nothing, what it said
// before counts.
func TestUnknown(t *testing.T) {
	var reply atomic.Pointer[string]
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if text := *reply.Load(); text != "" {
			fmt.Fprint(w, text)
			return
		}
		http.NotFound(w, nil)
	}))
	defer engine.Close()
	reply.Store(new(string))
	noJSON := strings.Repeat(" ", maxReply) + layoutOf(kv)
	p := newPool(Config{URLs: []string{engine.URL}, PageSize: 4, Store: store{}, Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}, time.Millisecond)
	defer p.Close()
	for _, test := range []struct{ reply, why string }{
		{``, `the engine answers "404 Not Found" to the question for its layout`},
		{`[]`, `the engine's layout is no JSON of the known form`},
		{`{"enabled": false, "reason": "External L3 lookup requires rank-replicated/MLA pools"}`, `the engine tells no layout: "External L3 lookup requires rank-replicated/MLA pools"`},
		{strings.Replace(layoutOf(kv), "mooncake", "nixl", 1), `the engine's store is "nixl", not mooncake`},
		{strings.Replace(layoutOf(kv), "4", "64", 1), `the engine's page_size is 64, and the model's block_size 4`},
		{layoutOf(strings.Replace(kv, "all_pages", "block_groups", 1)), `the engine's layout has the policy "block_groups", which is not known`},
		{layoutOf(strings.Replace(kv, "all_pages", "trailing_pages", 1)), `the engine's layout has 0 trailing_pages`},
		{layoutOf(kv + `, {"pool": "indexer", "hit_policy": "all_pages"}`), `the engine's layout has a pool without objects`},
		{layoutOf(``), `the engine's layout has 0 objects a page, want 1 to 64`},
		{layoutOf(strings.Replace(kv, "__k", strings.Repeat("k", 511), 1)), `the engine's keys have 513 bytes beside the hash, at most 512 are possible`},
		{layoutOf(kv), ``},
		{noJSON, `the engine's layout is no JSON of the known form`},
	} {
		reply.Store(&test.reply)
		storetest.Eventually(t, "the engine is asked again", func() bool { return p.known.Load().why == test.why })
		_, err := p.PeekPrompt(t.Context(), 9, coordinator.NewHashes(make([]byte, 64), 32))
		if test.why == "" || test.reply == noJSON {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, router.LoadableUnknown(test.why), err)
	}
	engine.Close()
	storetest.Eventually(t, "the engine has gone", func() bool { return p.known.Load().why == gone })
	_, err := p.PeekPrompt(t.Context(), 9, coordinator.NewHashes(make([]byte, 64), 32))
	require.NoError(t, err)
}

const gone = "the engine that tells the layout cannot be reached"

// A layout counts for ten minutes while no engine answers. Of several engines the first that tells one counts, unless another
// tells another one.
func TestLayoutOfEngines(t *testing.T) {
	tells := func(engine, reply string) answer {
		l, err := parseLayout([]byte(reply), 4)
		return answer{engine, l, err}
	}
	const another, disabled = `{"suffixes": ["__v"], "hit_policy": "all_pages"}`, `{"enabled": false, "reason": "starting"}`
	silent := func(engine string) answer { return answer{engine, nil, withClass(errSilent, gone)} }
	layout := tells("", layoutOf(kv)).layout
	known := &knownLayout{layout: layout}
	for _, test := range []struct {
		what    string
		last    *knownLayout
		after   time.Duration
		answers []answer
		want    *layoutIs
	}{
		{"the first that answers", &knownLayout{}, 0, []answer{silent("a"), tells("b", layoutOf(kv)), silent("c")}, &layoutIs{kv, ""}},
		{"they agree", &knownLayout{}, 0, []answer{tells("a", layoutOf(kv)), tells("b", layoutOf(kv))}, &layoutIs{kv, ""}},
		{"one has none yet", known, 0, []answer{tells("a", disabled), tells("b", layoutOf(another))}, &layoutIs{another, ""}},
		{"two differ", known, 0, []answer{tells("a:1", layoutOf(kv)), silent("b"), tells("c:2", layoutOf(another))},
			&layoutIs{"", "engines tell different layouts: a:1 and c:2"}},
		{"one cannot be used", known, 0, []answer{tells("a:1", layoutOf(kv)), tells("b:2", layoutOf(""))},
			&layoutIs{"", "engines tell different layouts: a:1 and b:2 (the engine's layout has 0 objects a page, want 1 to 64)"}},
		{"none can be used", known, 0, []answer{tells("a:1", layoutOf("")), tells("b:2", layoutOf(""))},
			&layoutIs{"", "the engine's layout has 0 objects a page, want 1 to 64"}},
		{"none answers for a while", known, keepLayout - 1, []answer{silent("a"), silent("b")}, &layoutIs{kv, gone}},
		{"none answers for long", known, keepLayout, []answer{silent("a"), silent("b")}, &layoutIs{"", gone}},
		{"none ever answered", &knownLayout{}, 0, []answer{silent("a")}, &layoutIs{"", gone}},
		{"none has one", known, 0, []answer{silent("a"), tells("b", disabled)}, &layoutIs{"", `the engine tells no layout: "starting"`}},
	} {
		now := time.Time{}.Add(test.after)
		got := test.last.next(test.answers, now)
		require.Equal(t, test.want.why, got.why, test.what)
		if test.want.pools == "" {
			require.Nil(t, got.layout, test.what)
			continue
		}
		require.Equal(t, tells("", layoutOf(test.want.pools)).layout, got.layout, test.what)
		require.Equal(t, got.why == "", got.told.Equal(now), "%s: it was told now", test.what)
	}
}

// layoutIs is what is known of a layout: its pools, or why it is not known, or may soon be.
type layoutIs struct{ pools, why string }

// Several engines are asked. One that is away does not matter.
func TestSeveralEngines(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, layoutOf(kv)) }))
	defer engine.Close()
	away := httptest.NewServer(nil)
	away.Close()
	newKnown(t, Config{
		URLs: []string{away.URL, engine.URL, away.URL}, PageSize: 4, Store: store{}, Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
}
