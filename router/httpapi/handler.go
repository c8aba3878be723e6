package httpapi

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/hitline/hitline/internal/httpguard"
	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/lookup/access"
)

// OpenAPI is the description of the interface, in YAML, as GET /openapi.yaml answers it. It is not to be changed.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Handler is the HTTP API of a router.Service. It is an http.Handler, safe for concurrent use, and a prometheus.Collector of
// its requests.
type Handler struct {
	cfg      Config
	log      *slog.Logger
	requests chan struct{} // one element for each request that is read or answered
	arrivals arrivals
	refusals loglimit.Limit // of the log
	metrics  metrics
}

// New returns the handler. The caller bounds connections, and the time in which headers arrive, as http.Server does. The
// handler bounds bodies and replies.
func New(cfg Config) *Handler {
	cfg.Limits = cfg.Limits.withDefaults()
	return &Handler{
		cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		requests: make(chan struct{}, cfg.Limits.MaxRequests), arrivals: newArrivals(), metrics: newMetrics(),
	}
}

// endpoint is a path and what answers it.
type endpoint struct {
	path, method string
	needs        access.Permissions
	admin        bool     // an administrator alone
	fields       fieldSet // of the body of a POST
	answer       func(*call) error
}

var endpoints = [...]endpoint{
	{path: "/query", method: http.MethodPost, needs: access.Holders, fields: fieldsOfQuery, answer: (*call).query},
	{path: "/query_by_hash", method: http.MethodPost, needs: access.Holders, fields: fieldsOfQueryByHash, answer: (*call).query},
	{path: "/predict", method: http.MethodPost, needs: access.Store, fields: fieldsOfPredict, answer: (*call).predict},
	{path: "/register", method: http.MethodPost, admin: true, fields: fieldsOfRegister, answer: (*call).register},
	{path: "/unregister", method: http.MethodPost, admin: true, fields: fieldsOfUnregister, answer: (*call).unregister},
	{path: "/services", method: http.MethodGet, needs: access.Holders, answer: (*call).services},
	{path: "/health", method: http.MethodGet, answer: (*call).health},
	{path: "/ready", method: http.MethodGet, answer: (*call).ready},
	{path: "/dump", method: http.MethodGet, admin: true, answer: nil},
	{path: "/openapi.yaml", method: http.MethodGet, answer: (*call).openapi},
}

// find returns the endpoint of a path, nil if there is none.
func find(path string) *endpoint {
	for i := range endpoints {
		if endpoints[i].path == path {
			return &endpoints[i]
		}
	}
	return nil
}

// call is one request and its reply.
type call struct {
	*Handler
	ctx      context.Context
	http     *http.Request
	endpoint *endpoint
	access   Access
	body     *request
	kind     string // Content-Type; "": JSON
	reply    bytes.Buffer
}

// ServeHTTP answers one request. Whatever it answers, but a dump, is in memory before it is sent.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{Handler: h, http: r, endpoint: find(r.URL.Path)}
	counted := &statusWriter{ResponseWriter: w}
	begun := time.Now()
	defer func() { h.metrics.observe(c.endpoint, counted.status, begun) }() // also after a panic
	defer h.recovered(counted, r)
	httpguard.SetHeaders(w.Header())
	h.limitBody(counted, r)
	if c.endpoint != nil && c.endpoint.answer == nil {
		h.serveDump(counted, c)
		return
	}
	if err := h.answer(counted, c); err != nil {
		h.writeError(counted, err)
		return
	}
	w.Header().Set("Content-Type", cmp.Or(c.kind, "application/json"))
	h.write(counted, http.StatusOK, c.reply.Bytes())
}

// recovered answers with status 500 after a panic, which is a bug of ours. It ends no other request.
func (h *Handler) recovered(w http.ResponseWriter, r *http.Request) {
	switch why := recover(); why {
	case nil:
	case http.ErrAbortHandler:
		panic(why)
	default:
		h.log.Error("a request failed: please report this", "path", r.URL.Path, "panic", fmt.Sprint(why), "stack", string(debug.Stack()))
		h.writeError(w, refuse(http.StatusInternalServerError, "internal", "an error of the server, which its log has"))
	}
}

// answer checks what the sender may do, reads the body and computes the reply.
func (h *Handler) answer(w http.ResponseWriter, c *call) error {
	if err := h.admit(w, c); err != nil {
		return err
	}
	e := c.endpoint
	if e.needs != 0 || e.admin { // the rest is cheap, and is answered when the server is busy, too
		if !h.takePlace() {
			return refuse(http.StatusServiceUnavailable, "busy", "%d requests are being answered; try again", h.cfg.Limits.MaxRequests)
		}
		defer func() { <-h.requests }()
	}
	if e.method == http.MethodPost {
		c.body = newRequest(&h.cfg.Limits)
		defer c.body.release()
		if err := h.readBody(w, c, e.fields); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(c.http.Context(), h.cfg.Limits.ReplyTimeout)
	defer cancel()
	c.ctx = ctx
	return e.answer(c)
}

// admit refuses requests that their sender may not make.
func (h *Handler) admit(w http.ResponseWriter, c *call) error {
	r, e := c.http, c.endpoint
	if err := httpguard.CheckOrigin(r, h.cfg.Local); err != nil {
		return refuse(http.StatusForbidden, "other_origin", "%v", err)
	}
	if e == nil {
		return refuse(http.StatusNotFound, "no_path", "there is no such path; GET /openapi.yaml describes those that there are")
	}
	head := e.method == http.MethodGet && e.answer != nil // a dump has no length before it is written
	if r.Method != e.method && (r.Method != http.MethodHead || !head) {
		allow := e.method
		if head {
			allow = "GET, HEAD"
		}
		w.Header().Set("Allow", allow)
		return refuse(http.StatusMethodNotAllowed, "method_not_allowed", "%s takes %s", e.path, allow)
	}
	if err := h.authorize(c); err != nil {
		return err
	}
	if e.method == http.MethodPost {
		return checkMediaType(r.Header)
	}
	return nil
}

// authorize checks what the sender of a request may do, and whether the server can do it yet.
func (h *Handler) authorize(c *call) error {
	e := c.endpoint
	if e.needs == 0 && !e.admin {
		return nil
	}
	if h.cfg.Loaded != nil && !h.cfg.Loaded() {
		return refuse(http.StatusServiceUnavailable, "not_ready", "the server is starting")
	}
	c.access = Access{Permissions: access.All, Admin: true}
	if h.cfg.Authorize != nil {
		var err error
		if c.access, err = h.cfg.Authorize(c.http); err != nil {
			return refuse(http.StatusUnauthorized, "unauthorized", "%v", err)
		}
	}
	switch {
	case e.admin && !c.access.Admin:
		return c.forbidden("%s is for administrators: a token with every permission, of all pools", e.path)
	case e.needs&^c.access.Permissions != 0:
		return c.forbidden("%s needs the permission %s", e.path, e.needs)
	}
	return nil
}

// forbidden refuses what the sender may not do: with status 401 if a token may help.
func (c *call) forbidden(format string, args ...any) error {
	if c.access.Name == "" {
		return refuse(http.StatusUnauthorized, "unauthorized", format+"; send Authorization: Bearer TOKEN", args...)
	}
	return refuse(http.StatusForbidden, "forbidden", format, args...)
}

// checkMediaType refuses bodies that are not JSON, or compressed.
func checkMediaType(header http.Header) error {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "media_type", "the Content-Type must be application/json")
	}
	if coding := header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return refuse(http.StatusUnsupportedMediaType, "media_type", "the body must not be compressed")
	}
	return nil
}

// readBody reads the body of a request within BodyTimeout.
func (h *Handler) readBody(w http.ResponseWriter, c *call, fields fieldSet) error {
	limit := h.cfg.Limits.MaxBody
	if c.http.ContentLength > limit {
		return refuse(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", limit)
	}
	arrival := h.arrivals.begin(w)
	err := c.body.read(http.MaxBytesReader(w, c.http.Body, limit), fields)
	if !h.arrivals.end(arrival) && err == nil {
		err = os.ErrDeadlineExceeded // the deadline that ended it ends the connection, too
	}
	if err != nil && !isKnown(err) {
		return refuse(http.StatusBadRequest, "bad_json", "the body cannot be read: %v", err) // such as a chunk of another length
	}
	return err
}

// limitBody makes a body arrive within BodyTimeout. That holds for a request that is refused, too: http.Server reads the rest
// of its body. http.Server clears the deadline at the end of a body. Setting a deadline does not fail with a connection of
// http.Server; others, of tests, have none.
func (h *Handler) limitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.cfg.Limits.BodyTimeout))
	}
}

// write sends a reply within ReplyTimeout. The client may be gone, which is no error.
func (h *Handler) write(w http.ResponseWriter, status int, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.cfg.Limits.ReplyTimeout))
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// writeError sends the reply to a request that is refused.
func (h *Handler) writeError(w http.ResponseWriter, err error) {
	refused := refusalOf(err)
	switch refused.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusRequestTimeout, http.StatusRequestEntityTooLarge:
		w.Header().Set("Connection", "close") // the rest of the body is not read
	}
	if refused.status == http.StatusInternalServerError && !errors.Is(err, errRefused) {
		h.log.Error("a request failed", "error", err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	h.write(w, refused.status, refused.body())
}
