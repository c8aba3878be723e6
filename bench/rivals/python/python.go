// Package python holds the lookup server in Python that hitbench compare starts. It needs pyzmq.
package python

import _ "embed"

// LookupServer is the text of the program.
//
//go:embed lookup_server.py
var LookupServer string
