// Package python holds the lookup server in Python that hitbench compare starts.
package python

import _ "embed"

// LookupServer is the text of the server's program, which needs pyzmq.
//
//go:embed lookup_server.py
var LookupServer string
