// Package environ knows the environment variables that begin with HITLINE_. Programs refuse one that nobody reads: it is
// misspelt, and what it was to say would be ignored.
package environ

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hitline/hitline/cmd/internal/cli"
)

// Prefix begins the names of all variables.
const Prefix = "HITLINE_"

// Clients are the variables of clients and the plug-in.
var Clients = []string{
	"HITLINE_ADDRESS", "HITLINE_TOKEN_FILE", "HITLINE_TLS_CA", "HITLINE_TLS_CERT", "HITLINE_TLS_KEY",
	"HITLINE_TIMEOUT", "HITLINE_VLLM", "HITLINE_ON_MISMATCH", "HITLINE_LOOKUP", "HITLINE_POOL_NAME",
	"HITLINE_PROGRAM", "HITLINE_INSTANCE_ID",
}

// Sections are the fields at the top of the configuration of hitline serve. Their variables, and those of the fields
// below them, begin with their names.
var Sections = []string{
	"listen", "ipc_mode", "loops", "pool", "pools", "accept_pools", "max_pools", "backend", "router", "limits",
	"drain_delay", "drain_timeout", "metrics", "pprof", "http_hosts", "log",
}

// others are the variables of builds, tests and scripts. Nobody who configures a program means them.
var others = []string{
	"HITLINE_VERSION", "HITLINE_DATE", "HITLINE_LDFLAGS", "HITLINE_PYTHON_VERSION", "HITLINE_WHEEL_PLATFORM", "HITLINE_WHEEL_PROGRAMS",
	"HITLINE_KERNEL", "HITLINE_COLD", "HITLINE_TAG", "HITLINE_ROOTS", "HITLINE_KEEP", "HITLINE_CONFORMANCE", "HITLINE_E2E_DIR", "HITLINE_BENCH_ENTRIES",
}

// testPrefix begins the names of further variables of tests.
const testPrefix = Prefix + "TEST_"

// service matches what Kubernetes adds for a service, also for one that is called hitline-pool or hitline-log.
var service = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|ADDR|PORT))?)$`)

// IsKnown reports whether a variable is known, other than by the configuration of hitline serve.
func IsKnown(name string) bool {
	return service.MatchString(name) || slices.Contains(Clients, name) || slices.Contains(others, name) || strings.HasPrefix(name, testPrefix)
}

// Unknown returns the text that refuses a variable. names are those it may have been meant for.
func Unknown(name string, names []string) string {
	if near := cli.Nearest(name, names); near != "" {
		return "no such variable; did you mean " + near + "?"
	}
	return "no such variable; unset it"
}

// Check refuses an unknown variable, for a program that does not read the configuration of hitline serve. It takes
// every name below a section: hitline serve checks those.
func Check(environ []string) error {
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, Prefix) && !IsKnown(name) && !isOfServer(name) {
			return fmt.Errorf("%s: %s", name, Unknown(name, Clients))
		}
	}
	return nil
}

// isOfServer reports whether a name is that of a section, or of a field below one.
func isOfServer(name string) bool {
	return slices.ContainsFunc(Sections, func(section string) bool {
		rest, ok := strings.CutPrefix(name, Prefix+strings.ToUpper(section))
		return ok && (rest == "" || rest[0] == '_')
	})
}
