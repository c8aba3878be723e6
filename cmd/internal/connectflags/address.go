package connectflags

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/cmd/internal/address"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/api"
)

// AddressVariable names the environment variable with the address of the server, for a command
// without --connect. The plug-in for vLLM reads it, too.
const AddressVariable = "HITLINE_ADDRESS"

// engineAddress is a value of AddressVariable by which an engine runs a server of its own.
const engineAddress = "auto"

// connect is the name of the flag of the address.
const connect = "connect"

const (
	// httpPort is the port of the HTTP listener for an address without one.
	httpPort = "8557"
	// defaultHTTP is its address for a command without --connect.
	defaultHTTP = "http://127.0.0.1:" + httpPort

	httpScheme, httpsScheme = "http://", "https://"
)

// AddAddress defines the flag of the server's address. Commands whose address is not --connect do
// without.
func (f *Flags) AddAddress(set *pflag.FlagSet) {
	f.set = set
	if f.HTTP {
		set.String(connect, defaultHTTP, "`address` of the server: http://host:port, https://host:port or host:port")
		return
	}
	list := ""
	if !f.Single {
		list = ", or a list of them with commas"
	}
	set.String(connect, "", "`address` of the server: tcp://host:port, host:port or host (then port "+api.DefaultPort+"), tls://host:port or ipc:///path"+list+" (default $"+
		AddressVariable+", then "+api.DefaultListen+")")
}

// Address returns the address, or the list of them, that --connect names, otherwise that of the variable unless it is
// empty, otherwise the default. With HTTP there is no variable. It fails if the flags do not fit together or the address.
// An error names the flag or the variable.
func (f *Flags) Address() (server string, err error) {
	if f.HTTP {
		server, err = f.httpAddress()
	} else {
		server, err = f.listAddress()
	}
	if err == nil {
		err = f.check(server)
	}
	return server, err
}

// listAddress returns the address, or the list of them, that --connect, the variable or the default names.
func (f *Flags) listAddress() (string, error) {
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
	list := api.SplitList(text)
	if len(list) > 1 && f.Single {
		return "", fmt.Errorf("%s: %q is a list, and one server is asked; give its address by --%s", source, text, connect)
	}
	for i, entry := range list {
		if entry == engineAddress {
			return "", fmt.Errorf("%s: %s is no address of a list: an engine with it runs a server of its own", source, entry)
		}
		var err error
		if list[i], err = address.ForClient(entry, api.DefaultPort); err != nil {
			return "", fmt.Errorf("%s: %w", source, err)
		}
	}
	return strings.Join(list, ","), nil
}

// httpAddress returns the address that --connect names: http:// or https://, the host and the port.
func (f *Flags) httpAddress() (string, error) {
	text := f.set.Lookup(connect).Value.String()
	scheme, host := httpScheme, strings.TrimPrefix(text, httpScheme)
	if rest, ok := strings.CutPrefix(text, httpsScheme); ok {
		scheme, host = httpsScheme, rest
	}
	host = strings.TrimSuffix(host, "/")
	if strings.Contains(host, "/") {
		return "", fmt.Errorf("--%s: %q is no address of HTTP; use http://host:port or https://host:port", connect, text)
	}
	host, err := address.ForClient(host, httpPort)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", connect, err)
	}
	return scheme + host, nil
}

// ConnectError words the error of a connection. start says how to start a server.
func ConnectError(address string, err error, start string) error {
	if errors.Is(err, io.EOF) {
		if strings.HasPrefix(address, "tls://") || strings.HasPrefix(address, "https://") {
			return fmt.Errorf("%s: the server closed the connection; if it has no TLS, give tcp:// or http://", address)
		}
		return fmt.Errorf("%s: the server closed the connection; if it has TLS, give tls:// or https://", address)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("%s: the server's certificate is of an unknown authority; give the file of its authorities as --%s", address, ca)
	}
	cause := cli.SystemCause(err) // the text of err has the address, too
	if errors.Is(cause, syscall.ECONNREFUSED) || errors.Is(cause, syscall.ENOENT) {
		return fmt.Errorf("no server at %s (%w); %s", address, cause, start)
	}
	return fmt.Errorf("%s: %w", address, cause)
}
