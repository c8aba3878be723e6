// Package status tells people and scripts how a server is doing: as JSON at /status, as a page at /, and as text in a terminal.
// All three are made of one Status, which a Collector takes from the server. No promise: it is internal to this module.
//
//	status.go     Status, in JSON
//	collector.go  Collector: takes a Status, and remembers an hour and a day
//	history.go    what pools have counted of late
//	places.go     the places of tokens, with what to do about each
//	page.go       the page, page.html its template; chart.go its charts
//	text.go       the text for a terminal
package status
