package hicache

import (
	"errors"
	"fmt"
	"reflect"
	"time"
)

// answer is what one engine says of its layout.
type answer struct {
	engine string  // its host and port
	layout *layout // nil: err says why
	err    error
}

// Classes of errors of answers. Any other error says why a layout cannot be used.
var (
	errSilent   = errors.New("the engine does not answer") // for now: what it said before may be right
	errDisabled = errors.New("the engine has no layout")   // others may have one
)

// classError is an error of a class, whose text is its own.
type classError struct {
	class error
	text  string
}

func (e *classError) Error() string { return e.text }
func (e *classError) Unwrap() error { return e.class }

func withClass(class error, format string, args ...any) error {
	return &classError{class, fmt.Sprintf(format, args...)}
}

// String says in a reason what the engine tells.
func (a *answer) String() string {
	if a.layout == nil {
		return fmt.Sprintf("%s (%v)", a.engine, a.err)
	}
	return a.engine
}

// next returns what is known after all engines were asked at a time.
func (k *knownLayout) next(answers []answer, now time.Time) *knownLayout {
	var told *answer // the first whose layout can be used, or cannot
	unknown := answers[0].err
	for i := range answers {
		a := &answers[i]
		switch {
		case errors.Is(a.err, errSilent):
		case errors.Is(a.err, errDisabled):
			if errors.Is(unknown, errSilent) {
				unknown = a.err
			}
		case told == nil:
			told = a
		case !reflect.DeepEqual(told.layout, a.layout) || a.layout == nil && told.err.Error() != a.err.Error():
			return &knownLayout{why: fmt.Sprintf("engines tell different layouts: %v and %v", told, a)}
		}
	}
	switch {
	case told != nil && told.layout != nil:
		return &knownLayout{layout: told.layout, told: now}
	case told != nil:
		return &knownLayout{why: told.err.Error()}
	case k.layout != nil && errors.Is(unknown, errSilent) && now.Sub(k.told) < keepLayout:
		return &knownLayout{layout: k.layout, told: k.told, why: unknown.Error()}
	}
	return &knownLayout{why: unknown.Error()}
}
