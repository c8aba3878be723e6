// Package python holds the lookup server and the client in Python that hitbench
// compare starts. Both need pyzmq.
package python

import _ "embed"

// LookupServer is the text of the server's program.
//
//go:embed lookup_server.py
var LookupServer string

// LookupClient is the text of the client's program.
//
//go:embed lookup_client.py
var LookupClient string
