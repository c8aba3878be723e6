package connectflags

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/lookup/api"
)

// AddressVariable names the environment variable with the address of the server, for whoever names
// none by --connect. The plug-in for vLLM reads it, too.
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
// empty, otherwise the default. source is the flag or the variable that errors about it name.
func (f *Flags) Address() (address, source string, err error) {
	flag := f.set.Lookup(connect)
	address, source = flag.Value.String(), "--"+connect
	if variable := os.Getenv(AddressVariable); !flag.Changed && variable != "" {
		address, source = variable, AddressVariable
		if variable == engineAddress {
			return "", source, fmt.Errorf("%s is %s: an engine with that runs a server of its own; give the address in its log by --%s", source, variable, connect)
		}
	} else if !flag.Changed {
		address = api.DefaultListen
	}
	if _, _, err := api.SplitAddress(address); err != nil {
		return "", source, fmt.Errorf("%s: %w", source, err)
	}
	return address, source, nil
}
