package connectflags

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/cmd/internal/address"
	"github.com/hitline/hitline/lookup/api"
)

// AddressVariable names the environment variable with the address of the server, for a command
// without --connect. The plug-in for vLLM reads it, too.
const AddressVariable = "HITLINE_ADDRESS"

// engineAddress is a value of AddressVariable by which an engine runs a server of its own.
const engineAddress = "auto"

// connect is the name of the flag of the address.
const connect = "connect"

// AddAddress defines the flag of the server's address. Commands whose address is not --connect do
// without.
func (f *Flags) AddAddress(set *pflag.FlagSet) {
	f.set = set
	set.String(connect, "", "`address` of the server: tcp://host:port, host:port, tls://host:port, ipc:///path or ipc://@name (default $"+
		AddressVariable+", then "+api.DefaultListen+")")
}

// Address returns the address that --connect names, otherwise that of the variable unless it is
// empty, otherwise the default. An error names the flag or the variable.
func (f *Flags) Address() (string, error) {
	flag := f.set.Lookup(connect)
	text, source := flag.Value.String(), "--"+connect
	if variable := os.Getenv(AddressVariable); !flag.Changed && variable != "" {
		text, source = variable, AddressVariable
		if variable == engineAddress {
			return "", fmt.Errorf("%s is %s: an engine with that runs a server of its own; give the address in its log by --%s", source, variable, connect)
		}
	} else if !flag.Changed {
		text = api.DefaultListen
	}
	if err := address.Check(text); err != nil {
		return "", fmt.Errorf("%s: %w", source, err)
	}
	return text, nil
}
