// Package reference holds the Python modules that run vLLM's own code, for programs that start
// them. They are run as files of one directory; see over_master.py. No promise: it is internal to
// this module, and its API may change in any release.
package reference

import "embed"

// OverMaster is over_master.py and the modules that it imports.
//
//go:embed calls.py modules.py over_master.py specs.py wheel.py
var OverMaster embed.FS

// Engine has the modules that engine.py of router/events/testdata imports.
//
//go:embed calls.py modules.py packages.py specs.py wheel.py
var Engine embed.FS
