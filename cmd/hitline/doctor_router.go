package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/router"
)

// routerReport is what doctor tells of the router of a running server: numbers of sources.
type routerReport struct {
	Address    string `json:"address"`
	Sources    int    `json:"sources"`
	Stale      int    `json:"stale"`
	Incomplete int    `json:"incomplete"`
	Unchecked  int    `json:"unchecked"` // see router.Agreement
	Differ     int    `json:"differ"`

	notes, problems []string // of the report
}

func (r *routerReport) note(format string, args ...any) {
	r.notes = append(r.notes, "router: "+fmt.Sprintf(format, args...))
}

func (r *routerReport) problem(format string, args ...any) {
	r.problems = append(r.problems, "router: "+fmt.Sprintf(format, args...))
}

// maxRouterFindings bounds the lines about sources: there may be thousands.
const maxRouterFindings = 20

// httpURL returns where a program on this machine asks an HTTP listener.
func httpURL(listen string) (string, error) {
	network, address, err := api.SplitAddress(listen)
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http://"
	if network == "tls" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port), nil
}

// examineRouter asks the router of the server at t what it follows.
func examineRouter(ctx context.Context, t *target) (*routerReport, error) {
	r := &routerReport{Address: t.connect}
	reply, err := t.askHTTP(ctx, "/services", nil)
	switch {
	case errors.Is(err, client.ErrConnect):
		r.note("no server answers, so what it follows is not known: %v", err)
		return r, nil
	case errors.Is(err, client.ErrRefused):
		r.problem("%v; give the token of a credential that may ask for holders, by --token-file", err)
		return r, nil
	case err != nil:
		return nil, err
	}
	var services routerState
	if json.Unmarshal(reply, &services) != nil {
		r.problem("%s does not answer as a router does: router.listen is the address of something else", t.connect)
		return r, nil //nolint:nilerr // the report says it
	}
	for i := range services.Models {
		r.addModel(&services.Models[i])
	}
	for i := range services.Sources {
		r.addSource(&services.Sources[i])
	}
	r.addTotals()
	return r, nil
}

// addTotals adds what is found about all sources together.
func (r *routerReport) addTotals() {
	if r.Sources == 0 {
		r.note("it follows no engine; configure router.sources, or register engines")
	}
	if more := r.Stale + r.Differ - maxRouterFindings; more > 0 {
		r.problem("further sources are stale or hash otherwise: %d; GET /services lists them", more)
	}
	if r.Incomplete > 0 {
		r.note("incomplete sources do not know what their engines stored before: %d; that ends when an engine clears its cache or starts again", r.Incomplete)
	}
	if r.Unchecked > 0 {
		r.note("sources whose hashes are not known to agree or differ: %d; no first block of a prompt came with its tokens, one alone did and differs, or their models have no hash", r.Unchecked)
	}
}

// addModel adds what is found about the groups of a model.
func (r *routerReport) addModel(m *router.ModelStatus) {
	if n := len(m.Groups); n > 1 {
		r.note("engines of model %q tell %d different lists of groups; GET /services has them", m.Name, n)
	}
	for _, groups := range m.Groups {
		for _, g := range groups.Groups {
			if g.CountsAs != "" {
				r.problem("group %d of model %q is %.32q, of which events do not tell enough: it counts as %s; configure groups of the model",
					g.Group, m.Name, g.Kind, g.CountsAs)
			}
		}
	}
}

// addSource adds what is found about a source.
func (r *routerReport) addSource(s *router.SourceStatus) {
	r.Sources++
	name := fmt.Sprintf("rank %d of engine %q of model %q", s.Rank, s.Engine, s.Model)
	isListed := r.Stale+r.Differ < maxRouterFindings
	switch s.Hashes {
	case router.HashesDiffer:
		r.Differ++
		if isListed {
			r.problem("%s: %s", name, s.HashesReason)
		}
	case router.HashesUnchecked:
		r.Unchecked++
	}
	switch {
	case s.Stale:
		r.Stale++
		if isListed {
			r.problem("%s is stale, so it counts for nothing: %s; see that the engine runs, and that endpoint is where it publishes", name, s.LastError)
		}
	case !s.Complete:
		r.Incomplete++
	}
}

// String is a line of the report.
func (r *routerReport) String() string {
	return fmt.Sprintf("%s: sources %d, stale %d, incomplete %d, unchecked %d, differ %d", r.Address, r.Sources, r.Stale, r.Incomplete, r.Unchecked, r.Differ)
}
