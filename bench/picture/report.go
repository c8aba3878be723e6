package picture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// sound is what every report says of its worth.
type sound struct {
	Error   string // of a command that failed
	Partial bool
	Wrong   int
	Rows    []counted
	Steps   []counted
	Points  []counted
}

// counted is a part of a report.
type counted struct{ Wrong int }

// decode reads a report of the type R, of which only the fields in use are declared.
func decode[R any](s Source) (R, error) {
	var r R
	var of sound
	for _, into := range []any{&of, &r} {
		if err := decodeOne(s.JSON, into); err != nil {
			return r, fmt.Errorf("%w: %s: %w; give it what a command printed with --json", ErrInput, s.Name, err)
		}
	}
	wrong := of.Wrong
	for _, parts := range [][]counted{of.Rows, of.Steps, of.Points} {
		for _, part := range parts {
			wrong = max(wrong, part.Wrong)
		}
	}
	switch {
	case of.Error != "":
		return r, fmt.Errorf("%w: %s is of a command that failed: %s", ErrInput, s.Name, of.Error)
	case of.Partial:
		return r, fmt.Errorf("%w: %s is of a run that was cut short; measure again", ErrInput, s.Name)
	case wrong > 0:
		return r, fmt.Errorf("%w: %s has %d wrong answers; its times mean nothing", ErrInput, s.Name, wrong)
	}
	return r, nil
}

// decodeOne reads the one JSON object that text holds.
func decodeOne(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return fmt.Errorf("not a report: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows the first JSON object")
	}
	return nil
}

// lacks is the error for a source that has nothing of what is drawn.
func lacks(s Source, what, command string) error {
	return fmt.Errorf("%w: %s has no %s; take what %s prints", ErrInput, s.Name, what, command)
}

// load says how a server was loaded.
type load struct {
	Mode        string  `json:"mode"` // closed or open
	Dialect     string  `json:"dialect"`
	Connections int     `json:"connections"`
	Pipeline    int     `json:"pipeline"`
	Hashes      asGiven `json:"hashes"`
	Workload    string  `json:"workload"`
	Shared      bool    `json:"shared_cores"`
}

// asGiven is a number or a text such as "64-4096".
type asGiven string

// UnmarshalJSON implements json.Unmarshaler.
func (a *asGiven) UnmarshalJSON(b []byte) error {
	*a = asGiven(strings.Trim(string(b), `"`))
	return nil
}

// parts describes the load, without what is not known.
func (l load) parts() []string {
	var parts []string
	if l.Mode != "" {
		parts = append(parts, l.Mode+" loop")
	}
	if l.Connections > 0 {
		parts = append(parts, plural(l.Connections, "connection"))
	}
	if l.Pipeline > 1 {
		parts = append(parts, strconv.Itoa(l.Pipeline)+" under way on each")
	}
	switch {
	case l.Workload == "conversations":
		parts = append(parts, "conversations")
	case l.Hashes != "":
		parts = append(parts, string(l.Hashes)+" hashes a lookup")
	}
	if l.Dialect != "" {
		parts = append(parts, l.Dialect+" dialect")
	}
	if l.Shared {
		parts = append(parts, "client and server share the cores")
	}
	return parts
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
