package hicache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
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
	// maxProbes bounds the prompts that are asked about at a time. Each takes some 2 MiB at most.
	maxProbes = 8
)

// Config configures a Pool. All is required.
type Config struct {
	URL      string // of an engine's /get_hicache_l3_cache_layout, see CheckURL
	PageSize int    // tokens
	Store    backend.Prober
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

// knownLayout is what the engine said last.
type knownLayout struct {
	*layout        // nil: unknown
	why     string // it is unknown
}

// client has no proxy: engines are near. It follows no redirect.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// CheckURL returns an error for what cannot be Config.URL. It does not repeat the text, which may have a password.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("not the address of a layout; write http://host:port/get_hicache_l3_cache_layout, of an engine")
	}
	return nil
}

// New returns the pool of cfg. It asks the engine for the layout in the background, now and every 30 s, until Close.
func New(cfg Config) *Pool { return newPool(cfg, askEvery) }

func newPool(cfg Config, every time.Duration) *Pool {
	p := &Pool{cfg: cfg, probes: make(chan struct{}, maxProbes), ended: make(chan struct{})}
	p.known.Store(&knownLayout{why: "the engine has not told its layout yet"})
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go p.askLoop(ctx, every)
	return p
}

// Close ends asking the engine, and waits for that. Probes are still answered.
func (p *Pool) Close() {
	p.cancel()
	<-p.ended
}

func (p *Pool) askLoop(ctx context.Context, every time.Duration) {
	defer close(p.ended)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		next, err := p.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		why := ""
		if err != nil {
			why = err.Error()
		}
		switch last := p.known.Swap(&knownLayout{next, why}); {
		case last.why == why:
		case err != nil:
			p.cfg.Logger.Warn("what SGLang's store can load is not known", "engine", p.cfg.URL, "reason", why)
		default:
			p.cfg.Logger.Info("an SGLang engine has told the keys of its store", "engine", p.cfg.URL)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// ask asks the engine once.
func (p *Pool) ask(ctx context.Context) (*layout, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.cfg.URL, nil)
	if err != nil {
		return nil, errors.New("the engine cannot be asked for its layout")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, errors.New("the engine that tells the layout cannot be reached")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the engine answers %.40q to the question for its layout", resp.Status)
	}
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return nil, errors.New("the engine broke off when it told its layout")
	}
	return parseLayout(reply, p.cfg.PageSize)
}

// Pool implements router.Pool.
func (p *Pool) Pool() coordinator.Pool {
	return coordinator.Pool{HashBlockSize: p.cfg.PageSize, HashLen: blockhash.DigestLen}
}

// ProbePrompt implements router.Pool. hashes are those that pages have in the storage. As in the engine, one token is left
// to compute.
func (p *Pool) ProbePrompt(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (coordinator.Hit, error) {
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
	hit, err := known.probe(ctx, p.cfg.Store, hashes, int(pages))
	if err != nil {
		return coordinator.Hit{}, router.LoadableUnknown(fmt.Sprintf("the store does not answer: %.200v", err))
	}
	return coordinator.Hit{Tokens: int64(hit) * pageSize}, nil
}
