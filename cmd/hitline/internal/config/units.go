package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/hitline/hitline/router"
)

// Size is a number of bytes. As text it is a whole number, alone or followed at
// once by KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB (powers of 1000).
type Size int64

// sizeUnits go from the largest binary unit down, which MarshalText relies on.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3},
}

const sizeForms = "a number of bytes such as 67108864, 64MiB or 64MB (KiB, MiB, GiB, TiB; KB, MB, GB)"

// UnmarshalText reads the forms above and refuses all others.
func (s *Size) UnmarshalText(text []byte) error {
	digits, unit := string(text), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, unit = rest, u.bytes
			break
		}
	}
	number, err := parseInt(digits)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && number > math.MaxInt64/unit:
		return fmt.Errorf("%q is more than the largest size, 8388607TiB", text)
	case err != nil || number < 0:
		return fmt.Errorf("%q is not %s", text, sizeForms)
	}
	*s = Size(number * unit)
	return nil
}

// MarshalYAML returns what String does, a number without a unit as a number.
func (s Size) MarshalYAML() (any, error) {
	if text := s.String(); strings.HasSuffix(text, "B") {
		return text, nil
	}
	return int64(s), nil
}

// String returns the size with the largest power of 1024 that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits[:4] {
		if s != 0 && int64(s)%u.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(s)/u.bytes, u.suffix)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Duration is a time such as 100ms, 10s, 1m30s or 2h, or 0.
type Duration = router.Duration

// Mode is the permissions of a file in octal: 0600, 0660 or 0666, and what lies
// between.
type Mode fs.FileMode

// UnmarshalText reads three octal digits, with or without zeros before them.
func (m *Mode) UnmarshalText(text []byte) error {
	digits := strings.TrimLeft(string(text), "0")
	bits, err := strconv.ParseUint(digits, 8, 9)
	if err != nil || bits&^0o666 != 0 || bits&0o600 != 0o600 {
		return fmt.Errorf("%q is not the permissions of a socket, in octal from 0600 to 0666 without the bits for executing", text)
	}
	*m = Mode(bits)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (m Mode) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%04o", uint32(m)), nil }

// Level is the least severity that is logged: debug, info, warn or error.
type Level string

// Format is how log lines are written: text or json.
type Format string
