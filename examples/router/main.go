// Command router sends completions to the engine that has the least to compute: how a router in Go uses what hitline
// answers. docs/router.md says what the answers mean.
//
//	go run ./examples/router -hitline http://127.0.0.1:8557 engine-0=http://10.0.0.10:8000 engine-1=http://10.0.0.11:8000
//	curl -s http://127.0.0.1:8080/v1/completions -d '{"model": "llama", "prompt": [1, 2, 3]}'
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/router/client"
)

const (
	// storeWeight is what a token counts that the shared store can load: loading costs less than computing.
	storeWeight = 0.5
	maxBody     = 16 << 20
)

// engine is one engine, by the name that hitline has for it (instance_id).
type engine struct {
	name  string
	proxy *httputil.ReverseProxy
	load  float64 // tokens that it still has to compute; guarded by router.mu
}

// router is an http.Handler.
type router struct {
	hitline *client.Client // with the timeout of main: without an answer in time a request goes by load alone
	engines []*engine
	mu      sync.Mutex
	checked atomic.Bool // the names of the engines
}

// ServeHTTP sends a request to the engine that has the least to compute, and tells hitline which one that is.
func (r *router) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	var completion struct {
		Model  string  `json:"model"`  // which hitline has under the same name
		Prompt []int64 `json:"prompt"` // token ids; a router that has texts tokenizes them first
	}
	_ = json.Unmarshal(body, &completion) // a request of another form goes by load alone
	prompt := client.Prompt{Model: completion.Model, Tokens: completion.Prompt}
	chosen, cost := r.choose(request.Context(), prompt)
	defer r.finish(chosen, cost)
	if len(prompt.Tokens) > 0 {
		r.predict(request.Context(), chosen, prompt)
		r.checkNames(request.Context())
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	chosen.proxy.ServeHTTP(w, request)
}

// choose returns the engine that would be done first with a prompt, and what the prompt costs there, in tokens. The
// cost is part of the engine's load until finish.
func (r *router) choose(ctx context.Context, prompt client.Prompt) (*engine, float64) {
	answer := &client.Answer{} // that no engine has anything
	if len(prompt.Tokens) > 0 {
		query := client.Query{Prompt: prompt, Loadable: true}
		if found, err := r.hitline.Query(ctx, &query); err == nil {
			answer = found
		} else {
			log.Printf("by load alone: %v", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var best *engine
	var bestCost float64
	for _, e := range r.engines {
		cost := float64(len(prompt.Tokens)) - saved(answer, e.name) + 1 // a request without tokens is work, too
		if best == nil || e.load+cost < best.load+bestCost {
			best, bestCost = e, cost
		}
	}
	best.load += bestCost
	return best, bestCost
}

// saved returns how many tokens of a prompt an engine need not compute.
func saved(answer *client.Answer, name string) float64 {
	prefix, isStale := answer.Prefix(name, client.AllRanks)
	if isStale && prefix == 0 { // what it has is not known, so load alone decides
		return 0
	}
	return float64(prefix) + storeWeight*float64(max(answer.LoadableTokens-prefix, 0))
}

// checkNames logs once the engines that hitline does not follow under their names: it would never have anything of them.
func (r *router) checkNames(ctx context.Context) {
	if !r.checked.CompareAndSwap(false, true) {
		return
	}
	services, err := r.hitline.Services(ctx)
	if err != nil {
		r.checked.Store(false) // the next request asks again
		return
	}
	var followed []string
	for _, source := range services.Sources {
		followed = append(followed, source.Engine)
	}
	slices.Sort(followed)
	followed = slices.Compact(followed)
	for _, e := range r.engines {
		if len(followed) > 0 && !slices.Contains(followed, e.name) { // without events it knows what is predicted
			log.Printf("hitline follows no engine %q; it has %s", e.name, strings.Join(followed, ", "))
		}
	}
}

// predict tells hitline where a prompt goes. The next request with it goes there before the engine's events say so.
func (r *router) predict(ctx context.Context, chosen *engine, prompt client.Prompt) {
	prediction := client.Prediction{Prompt: prompt, Engine: chosen.name}
	if err := r.hitline.Predict(ctx, &prediction); err != nil {
		log.Printf("not predicted: %v", err)
	}
}

// finish takes the cost of a request off its engine's load.
func (r *router) finish(e *engine, cost float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.load -= cost
}

// newRouter returns a router for arguments NAME=URL.
func newRouter(hitline string, timeout time.Duration, engines []string) (*router, error) {
	c, err := client.New(hitline, client.WithTimeout(timeout))
	if err != nil {
		return nil, err
	}
	r := &router{hitline: c}
	for _, argument := range engines {
		name, address, _ := strings.Cut(argument, "=")
		target, err := url.Parse(address)
		if err != nil || name == "" || target.Host == "" {
			return nil, fmt.Errorf("%q must be NAME=URL, such as engine-0=http://10.0.0.10:8000", argument)
		}
		r.engines = append(r.engines, &engine{name: name, proxy: httputil.NewSingleHostReverseProxy(target)})
	}
	if len(r.engines) == 0 {
		return nil, fmt.Errorf("name at least one engine: NAME=URL")
	}
	return r, nil
}

func main() {
	hitline := flag.String("hitline", "http://127.0.0.1:8557", "`URL` of hitline's router.listen")
	timeout := flag.Duration("timeout", 50*time.Millisecond, "how long a request waits for hitline")
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	r, err := newRouter(*hitline, *timeout, flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(os.Stdout, "listening on http://%s\n", listener.Addr())
	log.Fatal((&http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}).Serve(listener))
}
