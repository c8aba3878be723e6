package snapshot

import "time"

// Status is what the server's page and its metrics tell of snapshots.
type Status struct {
	Path string `json:"path"`
	// Of the last snapshot that was written: when it was begun, how many seconds that took, and what is in
	// it. Zero before the first.
	Written time.Time `json:"written,omitzero"`
	Seconds float64   `json:"seconds"`
	Entries int64     `json:"entries"`
	Bytes   int64     `json:"bytes"`
	// Failed counts snapshots that could not be written. Error is why the last one could not, empty if it was
	// written.
	Failed int64  `json:"failed"`
	Error  string `json:"error,omitempty"`
	// LoadedEntries is how many entries were loaded at the start. LoadError is why the file was refused, in
	// part or as a whole.
	LoadedEntries int64  `json:"loaded_entries"`
	LoadError     string `json:"load_error,omitempty"`
}
