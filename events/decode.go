package events

import "errors"

// ErrPayload is wrapped by the errors of Decode.
var ErrPayload = errors.New("events: not a batch of KV events")

// Decoder decodes payloads. Its zero value is ready. One goroutine at a time.
type Decoder struct {
	event  Event
	hashes []byte // of integers
}

// Decode calls each for the events of a payload, in order. Event and its slices are borrowed:
// they are valid until each returns. It fails with an ErrPayload, possibly after some calls, or
// with the error of each.
func (d *Decoder) Decode(payload []byte, each func(*Event) error) (Batch, error) {
	return Batch{}, ErrPayload
}
