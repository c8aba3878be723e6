package main

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"math"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/events"
)

// newEventsCmd returns the command that prints the KV events of an engine.
func newEventsCmd() *cobra.Command {
	var cfg events.Config
	m := &monitor{ended: make(chan error, 1)}
	cmd := &cobra.Command{
		Use:   "events ENDPOINT",
		Short: "Print the KV events of an engine as they come",
		Long: `events follows the KV events that an engine publishes at ENDPOINT, such as
tcp://127.0.0.1:5557, and prints each batch as a line of JSON until it is
interrupted. It asks no server. With --replay it begins with the batches that
the engine still has. What goes wrong with the connection is printed on standard
error.

Lines of stored blocks have the block size, the group, its kind and its window
in tokens, as the pool of a server must have them. A gap in the sequence numbers
is of batches that were lost.`,
		Example: "  hitline events tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5558\n  hitline events 'tcp://*:5557' --bind -n 10",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("no endpoint given; give that of the publisher, such as tcp://127.0.0.1:5557")
			case len(args) > 1:
				return usagef("unexpected argument %q", args[1])
			case m.batches < 0:
				return usagef("--batches %d is negative", m.batches)
			}
			cfg.Endpoint, cfg.Observe = args[0], m.observe
			cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			m.out = cmd.OutOrStdout()
			return m.run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&m.batches, "batches", "n", 0, "end after this `number` of batches (default no end)")
	f.StringVar(&cfg.Replay, "replay", "", "`endpoint` of the replay socket (default none)")
	f.BoolVar(&cfg.Bind, "bind", false, "bind ENDPOINT and wait for a publisher that connects")
	f.StringVar(&cfg.Topic, "topic", "", "`prefix` of the topics to subscribe to (default all)")
	return cmd
}

// monitor prints batches. Its fields below the blank line belong to the goroutine of observe.
type monitor struct {
	out     io.Writer
	batches int        // after which it ends; 0: it goes on
	ended   chan error // of capacity 1: why it ends, nil after so many batches

	decoder events.Decoder
	printed int
	over    bool
}

// run follows a source until ctx ends or all batches are printed.
func (m *monitor) run(ctx context.Context, cfg events.Config) error {
	follower, err := events.Follow(cfg, discardHolder{})
	switch {
	case errors.Is(err, fielderror.ErrConfig):
		if field, ok := errors.AsType[*fielderror.Error](err); ok {
			err = field.Err // the command has no fields
		}
		return usagef("%v", err)
	case err != nil:
		return startError(err)
	}
	defer follower.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-m.ended:
		return err
	}
}

// observe prints a batch. The follower calls it, one batch after the other.
func (m *monitor) observe(seq uint64, payload []byte) {
	if m.over {
		return
	}
	err := cli.WriteJSON(m.out, m.read(seq, payload))
	m.printed++
	if m.over = err != nil || m.printed == m.batches; m.over {
		m.ended <- err
	}
}

// batchLine is a batch as it is printed.
type batchLine struct {
	Sequence uint64      `json:"sequence"`
	Time     float64     `json:"time"` // seconds since 1970, of the publisher; 0 if it says no number
	Rank     *int        `json:"rank,omitempty"`
	Events   []eventLine `json:"events"`
	Error    string      `json:"error,omitempty"` // why it cannot be read; events are those in front of it
}

// eventLine is an event as it is printed. Hashes are in hexadecimal.
type eventLine struct {
	Type      string `json:"type"`
	Blocks    int    `json:"blocks,omitempty"`
	BlockSize int64  `json:"block_size,omitempty"`
	Group     *int   `json:"group,omitempty"`
	Kind      string `json:"kind,omitempty"` // of the group, as the engine calls it
	Window    int64  `json:"sliding_window,omitempty"`
	Medium    string `json:"medium,omitempty"`
	Locality  string `json:"locality,omitempty"`
	LoRA      string `json:"lora_name,omitempty"`
	Parent    string `json:"parent,omitempty"`
	First     string `json:"first,omitempty"`
	Last      string `json:"last,omitempty"`
}

// kindNames are the types of events as they are printed.
var kindNames = map[events.Kind]string{
	events.KindUnknown: "unknown", events.KindStored: "stored", events.KindRemoved: "removed", events.KindCleared: "cleared",
	events.KindTierCleared: "tier_cleared",
}

// read decodes a batch.
func (m *monitor) read(seq uint64, payload []byte) *batchLine {
	line := &batchLine{Sequence: seq, Events: []eventLine{}}
	batch, err := m.decoder.Decode(payload, func(e *events.Event) error {
		line.Events = append(line.Events, readEvent(e))
		return nil
	})
	if err != nil {
		line.Error = err.Error()
	}
	if !math.IsNaN(batch.Time) && !math.IsInf(batch.Time, 0) { // JSON has neither
		line.Time = batch.Time
	}
	if batch.Rank >= 0 && err == nil {
		line.Rank = new(batch.Rank)
	}
	return line
}

// readEvent copies what is printed of an event.
func readEvent(e *events.Event) eventLine {
	line := eventLine{Type: kindNames[e.Kind], Medium: e.Tier.Medium}
	if e.Kind != events.KindStored && e.Kind != events.KindRemoved {
		return line
	}
	line.Blocks, line.BlockSize = e.Hashes.Len(), e.BlockSize
	line.Locality, line.LoRA = e.Tier.Locality, e.LoRAName
	if e.Group != events.NoGroup {
		line.Group = new(e.Group)
	}
	line.Kind, line.Window = e.SpecKind, max(e.SlidingWindow, 0)
	line.Parent = hex.EncodeToString(e.Parent)
	if line.Blocks > 0 {
		line.First, line.Last = hex.EncodeToString(e.Hashes.At(0)), hex.EncodeToString(e.Hashes.At(line.Blocks-1))
	}
	return line
}

// discardHolder holds nothing: the batches are only printed.
type discardHolder struct{}

func (discardHolder) Store(*events.Blocks, []bool) error           { return nil }
func (discardHolder) Remove(*events.Blocks) error                  { return nil }
func (discardHolder) ClearTier(*events.Blocks, func() error) error { return nil }
func (discardHolder) Clear()                                       {}
func (discardHolder) Dropped() int64                               { return 0 }
func (discardHolder) SetStale(bool)                                {}
func (discardHolder) Len() int                                     { return 0 }
