package config

import (
	"fmt"

	"github.com/hitline/hitline/internal/regularfile"
)

// Source says where to read from. Its zero value gives the defaults.
type Source struct {
	File    string   // path of the YAML file; "" for none
	Environ []string // NAME=value, as os.Environ returns
	Flags   Flags
}

// Load reads src in its order, checks the result as a whole, and fills in the
// pool's defaults. An error is one line that names the origin.
func Load(src Source) (*Config, error) {
	c := Default()
	c.origins = origins{}
	if src.File != "" {
		text, err := regularfile.Read(src.File)
		if err != nil {
			return nil, fmt.Errorf("cannot read the configuration: %w", err)
		}
		if err := c.readFile(src.File, text); err != nil {
			return nil, err
		}
	}
	if err := c.readEnviron(src.Environ); err != nil {
		return nil, err
	}
	if err := c.readFlags(src.Flags); err != nil {
		return nil, err
	}
	c.readRelease(src.Environ)
	if err := c.readMooncakeConfig(src.Environ); err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &c, nil
}

// validate checks what c says as a whole and fills in the pool's defaults.
func (c *Config) validate() error {
	settings := func() error { return c.checkSettings(fieldsOf(c), "", "") }
	for _, check := range []func() error{c.checkAddresses, settings, c.checkBackend, c.checkPool, c.checkRouter, c.checkHTTPHosts} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// readFile reads the text of a file over what c holds.
func (c *Config) readFile(name string, text []byte) error {
	r := reader{name: name, origins: c.origins}
	if err := r.document(fieldsOf(c), text, ""); err != nil {
		return err
	}
	return c.choose(func(at origin) bool { return at.name == name })
}
