package client

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// ErrPoolDiffers says that the server has the described pool otherwise: see WithPool. It comes
// together with ErrRefused. Its text names each field with both values.
var ErrPoolDiffers = errors.New("client: the pool differs")

// WithPool makes the client describe its engine's pool on each connection before anything
// else. All calls then are about that pool. If the server has it otherwise calls fail with
// ErrPoolDiffers, and if it refuses it for another reason with ErrRefused. name, if not empty,
// is that of the pool at the server. docs/protocol.md has the rules.
func WithPool(name string, pool coordinator.Pool) Option {
	return func(c *config) {
		c.description, c.descriptionErr = json.Marshal(struct {
			Name string `json:"name,omitempty"`
			coordinator.Pool
		}{name, pool})
	}
}

// WithPoolName is WithPool for a pool that the server has by this name.
func WithPoolName(name string) Option {
	return func(c *config) {
		c.description, c.descriptionErr = json.Marshal(map[string]string{"name": name})
	}
}

// Pool returns the pool as the server has told it on the last connection. ok is false if none
// was made, or without WithPool and WithPoolName.
func (c *Client) Pool() (pool api.Pool, ok bool) {
	if p := c.dialer.pool.Load(); p != nil {
		return *p, true
	}
	return api.Pool{}, false
}

// readPool reads the reply to a description.
func (d *dialer) readPool(frames [][]byte) error {
	if err := poolRefusal(frames); err != nil {
		return err
	}
	var pool api.Pool
	if len(frames) != 2 || json.Unmarshal(frames[1], &pool) != nil {
		return fmt.Errorf("%w: a pool without its JSON document", ErrReply)
	}
	d.pool.Store(&pool)
	return nil
}

// poolRefusal returns the error of a reply 00 to a description, nil for any other. A third frame
// that is not of an api.Refusal has the fields that differ.
func poolRefusal(frames [][]byte) error {
	err := readStatus(frames)
	if err != nil && len(frames) > 2 && errors.Is(err, ErrRefused) && !errors.Is(err, ErrNotAllowed) {
		return fmt.Errorf("%w: %w", ErrPoolDiffers, err)
	}
	return err
}

// maxPoolReply bounds the reply to a description: the pool in JSON, and some hundred bytes a
// group.
const maxPoolReply = 4 << 20
