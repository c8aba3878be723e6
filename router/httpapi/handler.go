package httpapi

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/httpguard"
	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/access"
)

// openAPI is the description of the interface, in YAML, as GET /openapi.yaml answers it. It is not to be changed.
//
//go:embed openapi.yaml
var openAPI []byte

// Handler is the HTTP API of a router.Service. It is an http.Handler, safe for concurrent use, and a prometheus.Collector of
// its requests.
type Handler struct {
	metrics
	cfg      Config
	log      *slog.Logger
	guard    httpguard.Guard
	paths    map[string]http.Handler
	other    http.Handler
	memory   *memory
	refusals loglimit.Limit // of the log
}

// New returns the handler. The caller bounds connections, and the time in which headers arrive, as http.Server does. The
// handler bounds bodies and replies.
func New(cfg Config) *Handler {
	cfg.limits = cmp.Or(cfg.limits, &defaultLimits)
	h := &Handler{
		metrics: newMetrics(), cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), paths: map[string]http.Handler{},
		guard:  httpguard.Guard{Local: cfg.Local, Hosts: cfg.Hosts, Links: []string{"/health", "/ready", "/openapi.yaml"}},
		memory: newMemory(cmp.Or(cfg.MaxMemory, DefaultMaxMemory)),
	}
	serve := func(path string, op *operation) http.Handler {
		return h.count(path, func(w http.ResponseWriter, r *http.Request) { h.serve(w, &call{Handler: h, http: r, operation: op}) })
	}
	for i := range operations {
		h.paths[operations[i].path] = serve(operations[i].path, &operations[i])
	}
	h.other = serve(otherPath, nil)
	return h
}

// operation is a path and what answers it.
type operation struct {
	path, method string
	needs        access.Permissions
	admin        bool                         // an administrator alone
	read         func(*call, io.Reader) error // reads the body of a POST
	answer       func(*call) error            // nil: see sendDump
}

var operations = [...]operation{
	{"/query", http.MethodPost, access.Holders, false, (*call).readPrompt, (*call).query},
	{"/query_by_hash", http.MethodPost, access.Holders, false, (*call).readPrompt, (*call).query},
	{"/predict", http.MethodPost, access.Store, false, (*call).readPrompt, (*call).predict},
	{"/register", http.MethodPost, 0, true, (*call).readRegistration, (*call).register},
	{"/unregister", http.MethodPost, 0, true, (*call).readRegistration, (*call).unregister},
	{"/services", http.MethodGet, access.Holders, false, nil, (*call).services},
	{"/health", http.MethodGet, 0, false, nil, (*call).health},
	{"/ready", http.MethodGet, 0, false, nil, (*call).ready},
	{"/dump", http.MethodGet, 0, true, nil, nil},
	{"/openapi.yaml", http.MethodGet, 0, false, nil, (*call).openapi},
}

// call is one request and its reply.
type call struct {
	*Handler
	ctx          context.Context
	http         *http.Request
	operation    *operation // nil: there is no such path
	access       Access
	prompt       *prompt // the body of a POST, or
	registration registration
	contentType  string // "": JSON
	reply        bytes.Buffer
	lease        lease // until the reply is sent
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handler, ok := h.paths[r.URL.Path]; ok {
		handler.ServeHTTP(w, r)
		return
	}
	h.other.ServeHTTP(w, r)
}

// serve answers one request. Whatever it answers, but a dump, is in memory before it is sent.
func (h *Handler) serve(w http.ResponseWriter, c *call) {
	c.lease = lease{memory: h.memory}
	defer c.lease.release()
	defer h.recovered(w, c.http)
	httpguard.SetHeaders(w.Header())
	h.limitBody(w, c.http)
	err := h.admit(w, c)
	switch {
	case err != nil:
	case c.operation.answer == nil:
		if err = h.sendDump(w, c); err == nil {
			return
		}
	default:
		err = h.answer(w, c)
	}
	if err != nil {
		c.lease.release() // http.Server may wait for the rest of the body
		h.writeError(w, err)
		return
	}
	h.write(w, http.StatusOK, cmp.Or(c.contentType, "application/json"), c.reply.Bytes())
}

// recovered answers with status 500 after a panic, which is a bug of ours. It ends no other request.
func (h *Handler) recovered(w http.ResponseWriter, r *http.Request) {
	switch why := recover(); why {
	case nil:
	case http.ErrAbortHandler:
		panic(why)
	default:
		h.log.Error("an HTTP request failed", "path", r.URL.Path, "error", requesterror.Fault(why))
		h.writeError(w, refuse(http.StatusInternalServerError, "internal", "an error of the server, which its log has"))
	}
}

// answer reads the body and computes the reply.
func (h *Handler) answer(w http.ResponseWriter, c *call) error {
	op := c.operation
	if op.needs == 0 && !op.admin { // it is cheap, and is answered when the server is busy, too
		return op.answer(c)
	}
	c.lease.key = cpushare.KeyOfRequest(c.http, c.access.Name)
	if err := c.lease.hold(1); err != nil {
		return err
	}
	if op.read != nil {
		c.prompt = prompts.Get().(*prompt)
		defer c.prompt.release()
		if err := h.readBody(w, c); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(c.http.Context(), h.cfg.limits.reply)
	defer cancel()
	c.ctx = ctx
	if op.admin {
		defer cpushare.Pause(ctx)() // a registration waits for others, or for its source to end
	}
	if err := op.answer(c); err != nil {
		return err
	}
	return c.lease.hold(int64(c.reply.Cap()))
}

// admit refuses requests that their sender may not make.
func (h *Handler) admit(w http.ResponseWriter, c *call) error {
	r, op := c.http, c.operation
	if err := h.guard.Check(r); err != nil {
		return refuse(http.StatusForbidden, "other_origin", "%v", err)
	}
	accessErr := h.setAccess(c)
	cpushare.SetCredential(r.Context(), c.access.Name)
	if errors.Is(accessErr, errConnection) {
		w.Header().Set("Connection", "close")
		return refuse(http.StatusUnauthorized, "unauthorized", "%v", accessErr)
	}
	if op == nil {
		return refuse(http.StatusNotFound, "no_path", "there is no such path; GET /openapi.yaml describes those that there are")
	}
	// net/http drops the body of HEAD. A dump is not copied for that.
	isHead := r.Method == http.MethodHead && op.method == http.MethodGet && op.answer != nil
	if r.Method != op.method && !isHead {
		w.Header().Set("Allow", op.method)
		return refuse(http.StatusMethodNotAllowed, "method_not_allowed", "%s takes %s", op.path, op.method)
	}
	if err := h.authorize(c, accessErr); err != nil {
		return err
	}
	contentType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if op.read != nil && (err != nil || contentType != "application/json" || r.Header.Get("Content-Encoding") != "") {
		return refuse(http.StatusUnsupportedMediaType, "media_type", "the Content-Type must be application/json, and the body not compressed")
	}
	return nil
}

// setAccess sets what the sender may do. It returns the error of Config.Authorize.
func (h *Handler) setAccess(c *call) (err error) {
	c.access = Access{Permissions: access.All, Admin: true}
	if h.cfg.Authorize != nil {
		c.access, err = h.cfg.Authorize(c.http)
	}
	return err
}

// authorize checks what the sender of a request may do, and whether the server can do it yet. accessErr is that of
// setAccess, which does not matter for what everybody may do.
func (h *Handler) authorize(c *call, accessErr error) error {
	op := c.operation
	if op.needs == 0 && !op.admin {
		return nil
	}
	if h.cfg.Loaded != nil && !h.cfg.Loaded() {
		return refuse(http.StatusServiceUnavailable, "not_ready", "the server is starting")
	}
	switch {
	case accessErr != nil:
		return refuse(http.StatusUnauthorized, "unauthorized", "%v", accessErr)
	case op.admin && !c.access.Admin:
		return c.forbidden("%s is for administrators: a token with every permission, of all pools", op.path)
	case op.needs&^c.access.Permissions != 0:
		return c.forbidden("%s needs the permission %s", op.path, op.needs)
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

// readBody reads the body of a request within the time that it has.
func (h *Handler) readBody(w http.ResponseWriter, c *call) error {
	limit := h.cfg.limits.body
	if c.operation.admin {
		limit = min(limit, maxRegistration)
	}
	large := func() error {
		return refuse(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", limit)
	}
	if c.http.ContentLength > limit {
		return large()
	}
	err := c.operation.read(c, http.MaxBytesReader(w, c.http.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return large()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // whose text has addresses; it ends the connection, too
		return refuse(http.StatusRequestTimeout, "slow_body", "the body did not arrive in time")
	}
	return err
}

// limitBody makes a body arrive in time. That holds for a request that is refused, too: http.Server reads the rest
// of its body. http.Server clears the deadline at the end of a body. Setting a deadline does not fail with a connection of
// http.Server; others, of tests, have none.
func (h *Handler) limitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.cfg.limits.arrival))
	}
}

// json makes the reply.
func (c *call) json(reply any) error { return writeJSON(&c.reply, reply) }

// writeJSON writes a value on a line. Texts that are no UTF-8 are mended.
func writeJSON(out *bytes.Buffer, value any) error {
	defer out.WriteByte('\n')
	return json.MarshalWrite(out, value, jsontext.AllowInvalidUTF8(true))
}

// write sends a reply in time. The client may be gone, which is no error. http.Server first waits for the body of a request
// that is refused.
func (h *Handler) write(w http.ResponseWriter, status int, contentType string, body []byte) {
	limit := h.cfg.limits.reply
	if status != http.StatusOK {
		limit += h.cfg.limits.arrival
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
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
	}
	h.write(w, refused.status, "application/json", refused.body())
}
