package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
)

// A reader of a dump may take none of it for dumpWriteTimeout, and maxDumpTime in all: a copy of the fleets is in memory
// until then.
const (
	dumpWriteTimeout = 30 * time.Second
	maxDumpTime      = 10 * time.Minute
)

// sendDump answers GET /dump. The dump is sent as it is made. It returns an error if nothing was sent.
func (h *Handler) sendDump(w http.ResponseWriter, c *call) error {
	ctx, cancel := context.WithTimeout(c.http.Context(), maxDumpTime)
	defer cancel()
	out := &dumpWriter{ctx: ctx, w: w}
	err := h.cfg.Service.WriteDump(ctx, out)
	if err != nil && out.begun {
		h.log.Warn("a dump was not sent to its end", "to", c.http.RemoteAddr, "error", err.Error())
		return nil
	}
	return err
}

// dumpWriter writes the body of a reply, with a deadline for each piece.
type dumpWriter struct {
	ctx   context.Context
	w     http.ResponseWriter
	begun bool
}

// Write implements io.Writer.
func (d *dumpWriter) Write(b []byte) (int, error) {
	if err := d.ctx.Err(); err != nil {
		return 0, err
	}
	if !d.begun {
		d.begun = true
		d.w.Header().Set("Content-Type", "application/octet-stream")
	}
	cpushare.Yield(d.ctx)
	_ = http.NewResponseController(d.w).SetWriteDeadline(time.Now().Add(dumpWriteTimeout)) // as in limitBody
	return d.w.Write(b)
}
