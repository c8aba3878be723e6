package main

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/internal/cli"
)

// fakeReport is a report of one figure.
type fakeReport struct {
	Wrong  int    `json:"wrong"`
	Server string `json:"server,omitempty"`
}

func (r fakeReport) WriteTable(w io.Writer) error {
	_, err := io.WriteString(w, "a\ttable\n"+r.Server)
	return err
}

// The report is printed, be it of a run that failed, and then nothing else on standard output.
func TestFinish(t *testing.T) {
	lost := errors.New("lost")
	for _, test := range []struct {
		name    string
		err     error
		answers answers
		want    string
	}{
		{"right", nil, answers{requests: 9}, ""},
		{"wrong", nil, answers{wrong: 2, refused: 1}, "2 answers are wrong, 1 requests were refused"},
		{"refused", nil, answers{refused: 1, requests: 9}, "0 answers are wrong, 1 requests were refused; 9 requests were measured"},
		{"partial", lost, answers{wrong: 2}, "lost"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout bytes.Buffer
			a := app{stdout: &stdout}
			err := a.finish(fakeReport{Wrong: 2}, true, test.err, test.answers)
			assert.Equal(t, "{\"wrong\":2}\n", stdout.String())
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
			require.ErrorIs(t, err, cli.ErrReported)
			assert.Equal(t, test.err != nil, errors.Is(err, lost))
		})
	}
	var stdout bytes.Buffer
	a := app{stdout: &stdout}
	require.NoError(t, a.finish(fakeReport{}, false, nil, answers{}))
	assert.Equal(t, "a\ttable\n", stdout.String())
	stdout.Reset()
	require.NoError(t, a.finish(fakeReport{Server: "v\u009b1"}, false, nil, answers{}))
	require.NoError(t, a.finish(fakeReport{Server: "v\u009b1"}, true, nil, answers{}))
	assert.Equal(t, "a\ttable\nv\\u009b1{\"wrong\":0,\"server\":\"v\\u009b1\"}\n", stdout.String())
	a.stdout = brokenWriter{}
	err := a.finish(fakeReport{}, false, nil, answers{wrong: 1})
	require.EqualError(t, err, "cannot print the answer: disk full")
	require.NotErrorIs(t, err, cli.ErrReported)
}
