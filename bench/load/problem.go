//go:build linux

package load

import "fmt"

// Problem describes an answer that is wrong, or was refused.
type Problem struct {
	Connect    string
	Connection int    // from 0
	Request    int64  // from 1, counted on its connection
	What       string // the request
	Expected   string
	Got        string
	Reason     string // what may be behind it; may be empty
	Refused    bool   // else it is wrong
}

// Error returns one line.
func (p *Problem) Error() string {
	text := fmt.Sprintf("%s: request %d on connection %d, %s: expected %s, got %s",
		p.Connect, p.Request, p.Connection, p.What, p.Expected, p.Got)
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// Sample is what one window of measuring saw.
type Sample struct {
	Elapsed           float64 // seconds since the measuring at this rate began
	RequestsPerSecond float64
	P50us, P99us      float64 // of lookups, as in Figures
	Wrong, Refused    int64   // since the run began
}
