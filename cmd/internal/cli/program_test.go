package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/printable"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// Classes of errors of the program under test.
var (
	errOptions = errors.New("options")
	errTrace   = errors.New("trace")
	errServer  = errors.New("server")
)

// newTestRoot returns a program with a command "measure" that returns err.
func newTestRoot(err error) *cobra.Command {
	root := &cobra.Command{Use: "prog", Short: "A program", Long: "prog is for tests.", Example: "  prog measure", Version: "v1"}
	measure := &cobra.Command{
		Use: "measure --out FILE", Short: "Measure", Long: "Measure something.", Example: "  prog measure --out x",
		Args: NoArgs,
		RunE: func(*cobra.Command, []string) error { return err },
	}
	var d time.Duration
	measure.Flags().Int("connections", 1, "connections, of which\nthere may be so many that this text takes more than a line")
	DurationVarP(measure.Flags(), &d, "duration", "d", 0, "how long")
	measure.Flags().String("dialect", "raw", "dialect: raw or zmtp")
	Complete(measure, "dialect", "raw", "zmtp")
	measure.Flags().String("out", "", "`file` to write")
	measure.Flags().String("log", "", "`PATH` of the log")
	_ = measure.MarkFlagRequired("out")
	FlagGroup(measure.Flags(), "Connection", func(group *pflag.FlagSet) {
		group.String("connect", "", "`address`")
		group.Bool("json", false, "one line of JSON")
	})
	AddGroup(root, "Measure", measure)
	root.AddCommand(&cobra.Command{Use: "version", Short: "Print it", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return nil }})
	Prepare(root)
	return root
}

// result is what a command line left behind.
type result struct {
	code           int
	stdout, stderr string
}

func run(ctx context.Context, root *cobra.Command, line string) result {
	var stdout, stderr bytes.Buffer
	p := Program{Root: root, Usage: []error{errOptions}, Input: []error{errTrace}, Lost: []error{errServer}, Signals: true}
	code := p.Run(ctx, strings.Fields(line), strings.NewReader(""), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// Each error has the exit code of its class, and is the same line with and without JSON.
func TestErrors(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
		hint bool
	}{
		{errors.New("bad answer"), ExitFailed, false},
		{Usagef("--x is %d", 1), ExitUsage, true},
		{WithClass(errors.New("c.yaml"), api.ErrConfig), ExitUsage, false},
		{fmt.Errorf("%w: x", errOptions), ExitUsage, true},
		{fmt.Errorf("%w: x", errTrace), ExitUsage, false},
		{fmt.Errorf("a: %w", client.ErrRequest), ExitUsage, false},
		{fmt.Errorf("%w: x", errServer), ExitLost, false},
		{fmt.Errorf("a: %w", client.ErrConnect), ExitLost, false},
		{fmt.Errorf("a: %w", client.ErrNoAnswer), ExitLost, false},
		{fmt.Errorf("a: %w", context.DeadlineExceeded), ExitLost, false},
		{fmt.Errorf("a: %w", context.Canceled), ExitLost, false},
		{errors.New("two\nlines\x1b[2J \u202e"), ExitFailed, false},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			want := "prog: " + strings.TrimPrefix(printable.Text(test.err.Error()), "options: ") + "\n" // the class names no place
			if test.hint {
				want += "hint: prog measure --help\n"
			}
			assert.Equal(t, result{test.code, "", want}, run(t.Context(), newTestRoot(test.err), "measure --out x"))
			got := run(t.Context(), newTestRoot(test.err), "measure --out x --json")
			assert.Equal(t, test.code, got.code)
			assert.Regexp(t, fmt.Sprintf(`^\{"error":".+","exit":%d\}\n$`, test.code), got.stdout)
			assert.Equal(t, want, got.stderr)
		})
	}
	assert.Equal(t, ExitDone, Program{}.ExitCode(nil))
	assert.Equal(t, result{}, run(t.Context(), newTestRoot(nil), "measure --out x --json"))
	require.NoError(t, WithClass(nil, ErrUsage))
}

// What a server or an engine has worded reaches a terminal neither as a command nor in another order. JSON says what it was.
func TestPrinting(t *testing.T) {
	const hostile = "a\n\tb\r\x00\x1b[31m\x7f\u0085\u009b2J\u061c\u200f\u202e\u2066\u2028\u2029é"
	const rest = `b\r\x00\x1b[31m\x7f\u0085\u009b2J\u061c\u200f\u202e\u2066\u2028\u2029é`
	assert.Equal(t, `a\n\t`+rest, printable.Text(hostile))
	var out strings.Builder
	require.NoError(t, WriteText(&out, hostile))
	assert.Equal(t, "a\n\t"+rest, out.String())
	out.Reset()
	require.NoError(t, WriteJSON(&out, hostile))
	assert.Equal(t, `"a\n\tb\r\u0000\u001b[31m\u007f\u0085\u009b2J\u061c\u200f\u202e\u2066\u2028\u2029é"`+"\n", out.String())
	got := run(t.Context(), newTestRoot(errors.New("\u009b2J")), "measure --out x --json")
	assert.Equal(t, `{"error":"\u009b2J","exit":1}`+"\n", got.stdout)
}

// What a command has printed itself is not printed again.
func TestReported(t *testing.T) {
	got := run(t.Context(), newTestRoot(WithClass(fmt.Errorf("%w: x", errServer), ErrReported)), "measure --out x --json")
	assert.Equal(t, result{ExitLost, "", "prog: server: x\n"}, got)
}

// After a signal all errors are of it, but not those of the command line.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	root := newTestRoot(fmt.Errorf("%w: x", errServer))
	assert.Equal(t, result{ExitFailed, `{"error":"interrupted","exit":1}` + "\n", "prog: interrupted\n"}, run(ctx, root, "measure --out x --json"))
	assert.Equal(t, ExitUsage, run(ctx, newTestRoot(nil), "measure").code)
	root = newTestRoot(WithClass(errServer, ErrReported))
	assert.Equal(t, result{ExitFailed, "", "prog: interrupted\n"}, run(ctx, root, "measure --out x --json"))

	p := Program{Root: newTestRoot(fmt.Errorf("%w: x", client.ErrConnect))} // without Signals
	assert.Equal(t, ExitLost, p.Run(ctx, []string{"measure", "--out", "x"}, nil, new(bytes.Buffer), new(bytes.Buffer)))
}

// A wrong command line is told in one line, with what may be meant.
func TestWrongCommandLine(t *testing.T) {
	for _, test := range []struct{ line, want, hint string }{
		{"mesure", `unknown command "mesure"; did you mean measure?`, "prog"},
		{"xyzzy", `unknown command "xyzzy"; one of completion, measure, version`, "prog"},
		{"mesure --json", `unknown command "mesure"; did you mean measure?`, "prog"},
		{"help mesure", `unknown command "mesure"; did you mean measure?`, "prog help"},
		{"--vresion", "unknown flag: --vresion; did you mean --version?", "prog"},
		{"measure now", `unexpected argument "now"`, "prog measure"},
		{"measure", "--out is required", "prog measure"},
		{"measure --conections 4", "unknown flag: --conections; did you mean --connections?", "prog measure"},
		{"measure --Out x", "unknown flag: --Out; did you mean --out?", "prog measure"},
		{"measure -connect x", "unknown shorthand flag: 'c' in -connect; did you mean --connect?", "prog measure"},
		{"measure -x", "unknown shorthand flag: 'x' in -x", "prog measure"},
		{"measure --chekc", "unknown flag: --chekc", "prog measure"},
		{"measure --nope", "unknown flag: --nope", "prog measure"},
		{"measure --out", "flag needs an argument: --out", "prog measure"},
		{"measure -d soon", `invalid argument "soon" for "-d, --duration" flag: write seconds, such as 10, or a duration, such as 500ms or 2m`, "prog measure"},
		{"measure -duration 5s", `invalid argument "uration" for "-d, --duration" flag: write seconds, such as 10, or a duration, such as 500ms or 2m; did you mean --duration?`, "prog measure"},
	} {
		t.Run(test.line, func(t *testing.T) {
			got := run(t.Context(), newTestRoot(errors.New("it ran")), test.line)
			assert.Equal(t, ExitUsage, got.code)
			assert.Equal(t, "prog: "+test.want+"\nhint: "+test.hint+" --help\n", got.stderr)
			if strings.Contains(test.line, "--json") {
				assert.Regexp(t, `^\{"error":"unknown .*","exit":2\}\n$`, got.stdout)
			} else {
				assert.Empty(t, got.stdout)
			}
		})
	}
	got := run(t.Context(), newTestRoot(nil), "measure --bogus --json")
	assert.Regexp(t, `^\{"error":".*","exit":2\}\n$`, got.stdout, "parsing has not come to it")
	assert.Equal(t, got, run(t.Context(), newTestRoot(nil), "measure --bogus --json=true"))
	assert.Empty(t, run(t.Context(), newTestRoot(nil), "measure --bogus --json=false").stdout)
	assert.Empty(t, run(t.Context(), newTestRoot(nil), "version --bogus --json").stdout, "it has none")
}

func TestNearest(t *testing.T) {
	names := []string{"duration", "connections", "connect", "rate"}
	for mistyped, want := range map[string]string{
		"duratoin": "duration", "conn": "connections", "connection": "connections", "connct": "connect", "rat": "rate", "RATE": "rate",
		"rounds": "", "x": "", "": "", "latency": "",
	} {
		assert.Equal(t, want, Nearest(mistyped, names), mistyped)
	}
	assert.Equal(t, "tokens", Nearest("token", []string{"token-file", "tokens"}))
	names = []string{
		"loops", "tp_size", "pp_size", "block_size", "max_bytes", "max_frames",
		"HITLINE_LOOPS", "HITLINE_POOL", "HITLINE_BACKEND_REDIS_URL", "HITLINE_BACKEND_REDIS_TTL", "HITLINE_BACKEND_REDIS_LAYOUT", "HITLINE_LOG_LEVEL",
	}
	for mistyped, want := range map[string]string{
		"loop": "loops", "loosp": "loops", "tp": "tp_size", "tp_sise": "tp_size", "blok_size": "block_size", "bytes": "max_bytes",
		"max_frame": "max_frames", "MAX_FRAMES": "max_frames", "bl": "block_size",
		"HITLINE_LOOP": "HITLINE_LOOPS", "HITLINE_BACKEND_REDIS_URI": "HITLINE_BACKEND_REDIS_URL", "HITLINE_BAKEND_REDIS_URL": "HITLINE_BACKEND_REDIS_URL",
		"HITLINE_LOG_LEVELS": "HITLINE_LOG_LEVEL", "hitline_pol": "HITLINE_POOL",
		// The words in common say nothing, nor do few letters.
		"dp_size": "", "xx_size": "", "l": "", "max_depth": "", "HITLINE_XYZ": "", "HITLINE_DEBUG": "", "HITLINE_BACKEND_REDIS_FOOBAR": "",
		"HITLINE_M": "", "": "",
	} {
		assert.Equal(t, want, Nearest(mistyped, names), mistyped)
	}
	long := strings.Repeat("x", 65)
	assert.Empty(t, Nearest(long, []string{long[1:]}), "the search would take long, and no name is this long")
}

func TestVersion(t *testing.T) {
	assert.Equal(t, result{stdout: "prog version v1\n"}, run(t.Context(), newTestRoot(nil), "--version"))
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"10": 10 * time.Second, "0.5": 500 * time.Millisecond, "0": 0, "1e-3": time.Millisecond, "250ms": 250 * time.Millisecond, "2m": 2 * time.Minute} {
		var d time.Duration
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		DurationVarP(set, &d, "duration", "d", time.Second, "how long")
		require.Equal(t, time.Second, d)
		require.NoError(t, set.Parse([]string{"-d", text}), text)
		assert.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "x", "10x", "NaN", "Inf", "1e300", "1h2"} {
		var d time.Duration
		require.Error(t, (*seconds)(&d).Set(text), text)
		assert.Zero(t, d)
	}
}
