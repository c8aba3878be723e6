//go:build linux

package main

import (
	"strconv"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

func TestCoresFlags(t *testing.T) {
	all, err := process.ParseCores(process.AnyCore)
	require.NoError(t, err)
	parse := func(args ...string) (client, server []int, err error) {
		var f coresFlags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(set, "", "")
		require.NoError(t, set.Parse(args))
		return f.parse()
	}
	client, server, err := parse()
	require.NoError(t, err)
	assert.Empty(t, client, "none is chosen")
	assert.Empty(t, server)
	core := strconv.Itoa(all[0])
	client, server, err = parse("--client-cores", core, "--server-cores", "any")
	require.NoError(t, err)
	assert.Equal(t, all[:1], client)
	assert.Equal(t, all, server, "any core, also the client's")
	_, _, err = parse("--server-cores", "0,x")
	require.ErrorIs(t, err, measure.ErrOptions)
	require.ErrorContains(t, err, "--server-cores: ")
}

// A list that is given again replaces the one before, as the value of any other flag does.
func TestListFlags(t *testing.T) {
	var hashes []int
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.IntSliceVar(&hashes, "hashes", []int{1, 2}, "")
	replaceList(set, "hashes")
	assert.Equal(t, []int{1, 2}, hashes)
	require.NoError(t, set.Parse([]string{"--hashes", "3,4", "--hashes", "64"}))
	assert.Equal(t, []int{64}, hashes)
	require.Error(t, set.Parse([]string{"--hashes", "64,x"}))
	assert.NotContains(t, set.FlagUsages(), "[]")
}
