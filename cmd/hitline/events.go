package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/router/events"
)

// newEventsCmd returns the command that prints the KV events of an engine.
func newEventsCmd() *cobra.Command {
	var cfg events.Config
	m := &monitor{}
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "events ENDPOINT",
		Short: "Print the KV events of an engine as they come",
		Long: `events follows the KV events that an engine publishes at ENDPOINT, such as
tcp://127.0.0.1:5557, and prints one line for each batch until it is
interrupted. It asks no server. With --replay it begins with the batches that
the engine still has; a gap that the replay socket does not fill has a line of
its own. What goes wrong with the connection is printed on standard error.

Lines of stored blocks have the group, its kind and its window in tokens, as the
pool of a server must have them; with --json its block size, too. Hashes are
printed by their last 64 bits, with --json whole.`,
		Example: "  hitline events tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5558\n  hitline events 'tcp://*:5557' --bind -n 10 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("no endpoint given; give that of the publisher, such as tcp://127.0.0.1:5557")
			case len(args) > 1:
				return usagef("unexpected argument %q", args[1])
			case m.batches < 0:
				return usagef("--batches %d is negative", m.batches)
			case timeout < 0:
				return usagef("--timeout %v is negative", timeout)
			}
			cfg.Endpoint = args[0]
			cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			m.out = cmd.OutOrStdout()
			return m.run(cmd.Context(), cfg, timeout)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&m.batches, "batches", "n", 0, "end after this `number` of batches (default no end)")
	f.StringVar(&cfg.Replay, "replay", "", "`endpoint` of the replay socket (default none)")
	f.BoolVar(&cfg.Bind, "bind", false, "bind ENDPOINT and wait for a publisher that connects")
	f.StringVar(&cfg.Topic, "topic", "", "`prefix` of the topics to subscribe to (default all)")
	f.BoolVar(&m.json, "json", false, "print JSON, one line for each batch")
	cli.DurationVarP(f, &timeout, "timeout", "", 0, "fail if there is no batch for this `time` (default wait for ever)")
	return cmd
}

// monitor prints batches. Its fields below the blank line belong to the goroutine of observe.
type monitor struct {
	out     io.Writer
	json    bool
	batches int           // after which it ends; 0: it goes on
	seen    chan struct{} // of capacity 1: there was a batch
	ended   chan error    // of capacity 1: why it ends, nil after so many batches

	decoder events.Decoder
	printed int
	next    uint64 // the number of the next batch, if any was printed
	over    bool
}

// run follows a source until ctx ends, all batches are printed, or there is none for the timeout.
func (m *monitor) run(ctx context.Context, cfg events.Config, timeout time.Duration) error {
	m.seen, m.ended = make(chan struct{}, 1), make(chan error, 1)
	cfg.Observe = m.observe
	follower, err := events.Follow(cfg, discardHolder{})
	switch {
	case errors.Is(err, fielderror.ErrConfig):
		return usagef("%v", err)
	case err != nil:
		return startError(err)
	}
	defer follower.Close()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	expired := timer.C
	if timeout == 0 {
		expired = nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-m.ended:
			return err
		case <-m.seen:
			timer.Reset(timeout)
		case <-expired:
			st := follower.Status()
			err := fmt.Errorf("no batch for %v", timeout)
			if st.LastError != "" {
				err = fmt.Errorf("%w: %s", err, st.LastError)
			}
			return cli.WithClass(err, context.DeadlineExceeded)
		}
	}
}

// observe prints a batch. The follower calls it, one batch after the other.
func (m *monitor) observe(seq uint64, payload []byte) {
	if m.over {
		return
	}
	b := m.read(seq, payload)
	err := m.gap(seq)
	if err == nil {
		err = m.print(b, b.text)
	}
	m.next = seq + 1
	m.printed++
	if m.over = err != nil || m.printed == m.batches; m.over {
		m.ended <- err
	}
	select {
	case m.seen <- struct{}{}:
	default:
	}
}

// gap prints which batches are missing in front of batch seq, or that the publisher has restarted, if so.
func (m *monitor) gap(seq uint64) error {
	switch {
	case m.printed == 0 || seq == m.next:
		return nil
	case seq < m.next:
		restart := struct {
			Restart uint64 `json:"restart"`
		}{seq}
		return m.print(restart, func() string { return fmt.Sprintf("restart: batch %d follows %d", seq, m.next-1) })
	}
	var gap struct {
		Gap struct {
			First uint64 `json:"first"`
			Last  uint64 `json:"last"`
		} `json:"gap"`
	}
	gap.Gap.First, gap.Gap.Last = m.next, seq-1
	return m.print(gap, func() string { return fmt.Sprintf("gap: batches %d to %d are missing", m.next, seq-1) })
}

// print prints a line: v as JSON, or the text.
func (m *monitor) print(v any, text func() string) error {
	if m.json {
		return cli.WriteJSON(m.out, v)
	}
	return cli.WriteText(m.out, cli.Printable(text())+"\n")
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

// maxTextEvents bounds the events in a line of text, so that a person can read it.
const maxTextEvents = 8

// mostTime bounds the time of a line of text, in seconds: its microseconds are an int64.
const mostTime = 1e12

// text returns a batch as a line.
func (b *batchLine) text() string {
	parts := make([]string, 0, maxTextEvents+2)
	for i, e := range b.Events {
		if i == maxTextEvents {
			parts = append(parts, fmt.Sprintf("%d more events", len(b.Events)-i))
			break
		}
		parts = append(parts, e.text())
	}
	if b.Error != "" {
		parts = append(parts, "cannot be read: "+b.Error)
	}
	rank := ""
	if b.Rank != nil {
		rank = fmt.Sprintf(" rank %d", *b.Rank)
	}
	at := time.UnixMicro(int64(max(-mostTime, min(b.Time, mostTime)) * 1e6)).UTC().Format("15:04:05.000")
	return fmt.Sprintf("#%d %s%s: %s", b.Sequence, at, rank, strings.Join(parts, "; "))
}

// text returns an event as a part of a line.
func (e *eventLine) text() string {
	if e.First == "" {
		return e.Type
	}
	text := fmt.Sprintf("%s %d", e.Type, e.Blocks)
	if e.Group != nil {
		text += fmt.Sprintf(" group %d", *e.Group)
	}
	if e.Kind != "" {
		text += " " + e.Kind
	}
	if e.Window > 0 {
		text += fmt.Sprintf(" %d", e.Window)
	}
	for _, word := range []string{e.Medium, e.Locality, e.LoRA} {
		if word != "" {
			text += " " + word
		}
	}
	if e.Parent != "" {
		text += " behind " + shortHash(e.Parent)
	}
	if text += " " + shortHash(e.First); e.Blocks > 1 {
		text += " to " + shortHash(e.Last)
	}
	return text
}

// shortHash returns the last 16 digits of a hash: those that engines send as an integer.
func shortHash(hash string) string { return hash[max(len(hash)-16, 0):] }

// discardHolder holds nothing: the batches are only printed.
type discardHolder struct{}

func (discardHolder) Store(*events.Blocks, []bool) error           { return nil }
func (discardHolder) Remove(*events.Blocks) error                  { return nil }
func (discardHolder) ClearTier(*events.Blocks, func() error) error { return nil }
func (discardHolder) Clear()                                       {}
func (discardHolder) Dropped() int64                               { return 0 }
func (discardHolder) SetStale(bool)                                {}
func (discardHolder) Len() int                                     { return 0 }
