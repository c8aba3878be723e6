package hicache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/blockhash"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/router"
)

const (
	askEvery   = 30 * time.Second
	askTimeout = 5 * time.Second
	maxReply   = 1 << 20 // bytes
	// keepLayout is how long a layout counts while no engine answers: one that restarts takes minutes.
	keepLayout = 10 * time.Minute
	// maxProbes bounds the prompts that are asked about at a time. Each takes some 2 MiB at most.
	maxProbes = 8
)

// MaxURLs bounds Config.URLs. All are asked at a time.
const MaxURLs = 16

// Store is the part of a backend.Backend that a Pool asks.
type Store interface {
	Exists(ctx context.Context, keys backend.Keys, peek bool) ([]int, error)
}

// Config configures a Pool. All is required.
type Config struct {
	URLs     []string // of /get_hicache_l3_cache_layout of engines that share a store, see CheckURL
	PageSize int      // tokens
	Store    Store
	Timeout  time.Duration // of asking the store about one prompt
	Logger   *slog.Logger
}

// Pool is the store of SGLang engines. It is safe for concurrent use.
type Pool struct {
	cfg    Config
	known  atomic.Pointer[knownLayout]
	probes chan struct{} // has an element for each probe that runs
	cancel context.CancelFunc
	ended  chan struct{}
}

var _ router.Pool = (*Pool)(nil)

// knownLayout is what the engines said last.
type knownLayout struct {
	*layout           // nil: unknown
	why     string    // it is unknown, or may soon be
	told    time.Time // when an engine told the layout
}

// client has no proxy: engines are near. It follows no redirect.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// CheckURL returns an error for what cannot be one of Config.URLs. It does not repeat the text, which may have a password.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("not the address of a layout; write http://host:port/get_hicache_l3_cache_layout, of an engine")
	}
	return nil
}

// New returns the pool of cfg. It asks the engines for the layout in the background, now and every 30 s, until Close.
func New(cfg Config) *Pool { return newPool(cfg, askEvery) }

func newPool(cfg Config, every time.Duration) *Pool {
	p := &Pool{cfg: cfg, probes: make(chan struct{}, maxProbes), ended: make(chan struct{})}
	p.known.Store(&knownLayout{why: "the engine has not told its layout yet"})
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go p.askLoop(ctx, every)
	return p
}

// Close ends asking the engines, and waits for that. Probes are still answered.
func (p *Pool) Close() {
	p.cancel()
	<-p.ended
}

func (p *Pool) askLoop(ctx context.Context, every time.Duration) {
	defer close(p.ended)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		answers := p.askAll(ctx)
		if ctx.Err() != nil {
			return
		}
		last := p.known.Load()
		next := last.next(answers, time.Now())
		p.known.Store(next)
		switch {
		case next.why == last.why:
		case next.layout != nil && next.why != "":
			p.cfg.Logger.Warn("no SGLang engine tells the keys of its store; the last ones are used for now",
				"engines", p.cfg.URLs, "reason", next.why)
		case next.why != "":
			p.cfg.Logger.Warn("what SGLang's store can load is not known", "engines", p.cfg.URLs, "reason", next.why)
		default:
			p.cfg.Logger.Info("an SGLang engine has told the keys of its store", "engines", p.cfg.URLs)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// askAll asks all engines once, at a time.
func (p *Pool) askAll(ctx context.Context) []answer {
	answers := make([]answer, len(p.cfg.URLs))
	var asking sync.WaitGroup
	for i, address := range p.cfg.URLs {
		asking.Go(func() {
			answers[i].layout, answers[i].err = p.ask(ctx, address)
			if u, err := url.Parse(address); err == nil {
				answers[i].engine = u.Host
			}
		})
	}
	asking.Wait()
	return answers
}

// ask asks an engine once.
func (p *Pool) ask(ctx context.Context, address string) (*layout, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, withClass(errSilent, "the engine cannot be asked for its layout")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, withClass(errSilent, "the engine that tells the layout cannot be reached")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, withClass(errSilent, "the engine answers %.40q to the question for its layout", resp.Status)
	}
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return nil, withClass(errSilent, "the engine broke off when it told its layout")
	}
	return parseLayout(reply, p.cfg.PageSize)
}

// Pool implements router.Pool.
func (p *Pool) Pool() coordinator.Pool {
	return coordinator.Pool{HashBlockSize: p.cfg.PageSize, HashLen: blockhash.DigestLen}
}

// PeekPrompt implements router.Pool. hashes are those that pages have in the storage. As in the engine, one token is left
// to compute.
func (p *Pool) PeekPrompt(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (coordinator.Hit, error) {
	known := p.known.Load()
	if known.layout == nil {
		return coordinator.Hit{}, router.LoadableUnknown(known.why)
	}
	defer cpushare.Pause(ctx)()
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	select {
	case p.probes <- struct{}{}:
		defer func() { <-p.probes }()
	case <-ctx.Done():
		return coordinator.Hit{}, router.LoadableUnknown("the store is busy")
	}
	pageSize := int64(p.cfg.PageSize)
	pages := min(int64(hashes.Len()), max(0, numTokens-1)/pageSize)
	hit, err := known.peek(ctx, p.cfg.Store, hashes, int(pages))
	if err != nil {
		return coordinator.Hit{}, router.LoadableUnknown(fmt.Sprintf("the store does not answer: %.200v", err))
	}
	return coordinator.Hit{Tokens: int64(hit) * pageSize}, nil
}
