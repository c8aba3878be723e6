package load

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// learnPool asks the server for the pool of its connections: the one that stat names, a tenant's
// first or the server's own.
func learnPool(ctx context.Context, c *wire.Control, o Options) (coordinator.Pool, error) {
	var stat struct {
		Pool string `json:"pool"`
	}
	if err := askJSON(ctx, c, o, netproto.TagStat, nil, &stat); err != nil {
		return coordinator.Pool{}, err
	}
	name, err := json.Marshal(map[string]string{"name": stat.Pool})
	if err != nil {
		return coordinator.Pool{}, err
	}
	var pool api.Pool
	err = askJSON(ctx, c, o, netproto.TagPool, [][]byte{name}, &pool)
	return pool.Pool, err
}

// askJSON makes a request and decodes the JSON of its reply.
func askJSON(ctx context.Context, c *wire.Control, o Options, tag netproto.Tag, frames [][]byte, reply any) error {
	text, err := c.Done(ctx, tag.String(), netproto.AppendRequest(nil, o.Dialect.Envelope(), tag, frames...))
	if err != nil {
		return fmt.Errorf("asking for the server's pool: %w", err)
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("%w: asking for the server's pool: %s: %w", measure.ErrAnswer, tag, err)
	}
	return nil
}
