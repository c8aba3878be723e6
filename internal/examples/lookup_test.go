package examples

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lookUp checks of a simple command that is not run whether it could be: that its flags, or what else it names, exist.
func (p *programs) lookUp(t *testing.T, where, command string) {
	t.Helper()
	args := words(t, command)
	switch args[0] {
	case "hitline", "hitbench":
		p.lookUpProgram(t, where, args)
	case "make":
		lookUpMake(t, where, args[1:])
	case "go":
		lookUpGo(t, where, args[1:])
	}
}

// lookUpProgram has a program parse its flags, and say that it has the command. Where a page tells of flags without
// their values, they are looked up in the help.
func (p *programs) lookUpProgram(t *testing.T, where string, args []string) {
	t.Helper()
	path := filepath.Join(p.bin, args[0])
	var flags []string
	if isHistory(where) {
		flags = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !strings.HasPrefix(arg, "-") })
		args = args[:min(2, len(args))]
	}
	out, err := exec.CommandContext(t.Context(), path, append(args[1:], "--help")...).CombinedOutput()
	if assert.NoError(t, err, "%s: %s: %s", where, strings.Join(args, " "), out) && len(args) > 1 && !strings.HasPrefix(args[1], "-") {
		assert.Contains(t, string(out), "\n  "+args[0]+" "+args[1], "%s: %s has no command %s", where, args[0], args[1])
	}
	for _, flag := range flags {
		assert.Regexp(t, `(?m)^ .*`+flag+` `, string(out), "%s: %s has no flag %s", where, strings.Join(args, " "), flag)
	}
}

// words splits a simple command as a shell does.
func words(t *testing.T, command string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bash", "-fc", "printf '%s\\0' "+strings.TrimPrefix(command, "bin/")).Output()
	require.NoError(t, err, command)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// lookUpMake checks that the Makefile has the targets and variables.
func lookUpMake(t *testing.T, where string, args []string) {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	for _, arg := range args {
		if name, _, variable := strings.Cut(arg, "="); variable {
			assert.Contains(t, string(makefile), "$("+name+")", "%s: the Makefile uses no variable %s", where, name)
		} else {
			assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(arg)+`:`, string(makefile), "%s: the Makefile has no target %s", where, arg)
		}
	}
}

// lookUpGo checks that packages, tests and benchmarks exist, and parses the flags of the scripts.
func lookUpGo(t *testing.T, where string, args []string) {
	t.Helper()
	var directories []string
	for _, arg := range args {
		if strings.HasPrefix(arg, "./") {
			directory := filepath.Join(root, strings.TrimSuffix(arg, "/..."))
			assert.DirExists(t, directory, "%s: go %s", where, strings.Join(args, " "))
			directories = append(directories, directory)
		}
	}
	if len(args) < 2 || args[0] != "test" && args[0] != "run" {
		return
	}
	if !assert.NotEmpty(t, directories, "%s: go %s names no package", where, strings.Join(args, " ")) {
		return
	}
	if args[0] == "run" {
		cmd := exec.CommandContext(t.Context(), "go", append(slices.Clone(args), "--help")...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s: go %s: %s", where, strings.Join(args, " "), out)
		return
	}
	for prefix, flag := range map[string]string{"Test": "-run", "Benchmark": "-bench"} {
		if i := slices.Index(args, flag); i >= 0 && args[i+1] != "^$" {
			names := functions(t, directories, prefix)
			for alternative := range strings.SplitSeq(args[i+1], "|") {
				top, _, _ := strings.Cut(alternative, "/")
				pattern, err := regexp.Compile(top)
				require.NoError(t, err, where)
				assert.True(t, slices.ContainsFunc(names, pattern.MatchString), "%s: go %s: no %s matches %s", where, strings.Join(args, " "), prefix, alternative)
			}
		}
	}
}

// functions returns the names of the tests or benchmarks of packages.
func functions(t *testing.T, directories []string, prefix string) []string {
	t.Helper()
	var names []string
	for _, directory := range directories {
		files, err := filepath.Glob(filepath.Join(directory, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, declaration := range parsed.Decls {
				if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, prefix) {
					names = append(names, f.Name.Name)
				}
			}
		}
	}
	return names
}
