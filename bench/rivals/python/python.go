// Package python holds the lookup server in Python that hitbench compare starts. It needs pyzmq. No
// promise: it is internal to this module, and its API may change in any release.
package python

import _ "embed"

// LookupServer is the text of the program.
//
//go:embed lookup_server.py
var LookupServer string
