// Package requesterror has the error of a request: its text is for the client, so it does not name
// packages, and it wraps a sentinel for programs.
package requesterror

import "fmt"

// New returns an error whose text is that of fmt.Sprintf alone, and which wraps sentinel.
func New(sentinel error, format string, args ...any) error {
	return &requestError{fmt.Sprintf(format, args...), sentinel}
}

type requestError struct {
	text     string
	sentinel error
}

// Error returns the text without that of the sentinel.
func (e *requestError) Error() string { return e.text }

// Unwrap returns the sentinel.
func (e *requestError) Unwrap() error { return e.sentinel }
