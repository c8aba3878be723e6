package picture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// decode reads a report of the type R, of which only the fields in use are
// declared.
func decode[R any](s Source) (R, error) {
	var r R
	var sound struct {
		Partial bool
		Wrong   int
	}
	for _, into := range []any{&sound, &r} {
		if err := decodeOne(s.JSON, into); err != nil {
			return r, fmt.Errorf("%w: %s: %w; give it what a command printed with --json", ErrInput, s.Name, err)
		}
	}
	switch {
	case sound.Partial:
		return r, fmt.Errorf("%w: %s is of a run that was cut short; measure again", ErrInput, s.Name)
	case sound.Wrong > 0:
		return r, fmt.Errorf("%w: %s has %d wrong answers; its times mean nothing", ErrInput, s.Name, sound.Wrong)
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

// positive returns an error if a figure that goes on a logarithmic axis is not
// above 0. The name is the field's.
func positive(s Source, name string, values ...float64) error {
	for i, v := range values {
		if v <= 0 {
			return fmt.Errorf("%w: %s: %s is %v in row %d; it must be above 0", ErrInput, s.Name, name, v, i+1)
		}
	}
	return nil
}

// labelled returns the text with the source's name before it if there are others.
func labelled(s Source, all []Source, text string) string {
	if len(all) == 1 {
		return text
	}
	return s.Name + ", " + text
}
