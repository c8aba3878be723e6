package python_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// machines are what Python calls the architectures that have wheels.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// The wheels of this tree: what is in them, which of them pip takes, and that one works where it is installed.
// scripts/check-wheels has the same tests, and more, in a system without anything else.
func TestWheels(t *testing.T) {
	python := python3(t)
	machine := machines[runtime.GOARCH]
	if runtime.GOOS != "linux" || machine == "" {
		t.Skip("there are no wheels with programs for this platform")
	}
	if out, err := command(t, python, "-c", "import sys; sys.exit(sys.version_info < (3, 10))").CombinedOutput(); err != nil {
		lacks(t, "python3 is older than 3.10, which the build tools need: %v\n%s", err, out)
	}
	t.Parallel()
	folder := t.TempDir()
	// pip's own warnings are not about the wheels.
	out, err := pip(t, "../../scripts/wheels", folder)
	if err != nil && strings.Contains(out, "is PyPI reachable?") {
		lacks(t, "%s", out)
	}
	require.NoError(t, err, "%s", out)
	require.Contains(t, out, "\n== the wheels with them, and twine's check", "each step has a line")
	archives, err := filepath.Glob(filepath.Join(folder, "*.tar.gz"))
	require.NoError(t, err)
	require.Len(t, archives, 1)
	base := strings.TrimSuffix(archives[0], ".tar.gz")
	version := strings.TrimPrefix(filepath.Base(base), "hitline-")
	pure := base + "-py3-none-any.whl"
	native := fmt.Sprintf("%s-py3-none-manylinux_2_17_%[2]s.manylinux2014_%[2]s.musllinux_1_1_%[2]s.whl", base, machine)
	found, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{archives[0], pure, native}, found)

	t.Run("contents", func(t *testing.T) { wheelContents(t, version, pure, native) })
	t.Run("choice", func(t *testing.T) { wheelChoice(t, python, folder, machine, pure, native) })
	t.Run("installed", func(t *testing.T) { wheelInstalled(t, python, version, native) })
	t.Run("found", func(t *testing.T) { wheelFound(t, python, native) })
}

// wheelContents checks that both wheels have all of the package, and only one of them programs.
func wheelContents(t *testing.T, version, pure, native string) {
	sources, err := filepath.Glob("hitline/*.py")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	want := append(slices.Clone(sources), "hitline/py.typed")
	info := "hitline-" + version + ".dist-info/"
	for _, name := range []string{"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"} {
		want = append(want, info+name)
	}
	assert.ElementsMatch(t, want, slices.Collect(maps.Keys(wheelFiles(t, pure))))

	scripts := "hitline-" + version + ".data/scripts/"
	files := wheelFiles(t, native)
	assert.ElementsMatch(t, append(want, scripts+"hitline", scripts+"hitbench", info+"licenses/THIRD_PARTY_NOTICES"), slices.Collect(maps.Keys(files)))
	for _, program := range []string{"hitline", "hitbench"} {
		file, err := elf.NewFile(bytes.NewReader(files[scripts+program]))
		require.NoError(t, err, program)
		for _, part := range file.Progs {
			assert.NotEqual(t, elf.PT_INTERP, part.Type, "%s needs a C library, which the wheel's platforms need not have", program)
		}
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		assert.Equal(t, string(text), string(files[source]), source)
	}
	assert.Contains(t, string(files[info+"licenses/THIRD_PARTY_NOTICES"]), "github.com/spf13/cobra")
}

// wheelFiles returns the files of a wheel, after it has compared them with the list in it.
func wheelFiles(t *testing.T, path string) map[string][]byte {
	reader, err := zip.OpenReader(path)
	require.NoError(t, err)
	defer reader.Close()
	files, record := map[string][]byte{}, ""
	for _, entry := range reader.File {
		file, err := entry.Open()
		require.NoError(t, err)
		content, err := io.ReadAll(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		files[entry.Name] = content
		if strings.HasSuffix(entry.Name, "/RECORD") {
			record = string(content)
		}
		if strings.Contains(entry.Name, ".data/scripts/") {
			assert.Equal(t, os.FileMode(0o755), entry.Mode().Perm(), entry.Name)
		} else {
			assert.Equal(t, os.FileMode(0o644), entry.Mode().Perm(), entry.Name)
		}
	}
	for name, content := range files {
		if sum := sha256.Sum256(content); !strings.HasSuffix(name, "/RECORD") {
			assert.Contains(t, record, fmt.Sprintf("%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(content)))
		}
	}
	return files
}

// wheelChoice checks which of the wheels in a folder pip takes for a platform.
func wheelChoice(t *testing.T, python, folder, machine, pure, native string) {
	for platform, want := range map[string]string{
		"manylinux2014_" + machine: native,
		"musllinux_1_1_" + machine: native,
		"macosx_11_0_arm64":        pure,
	} {
		target := t.TempDir()
		out, err := pip(t, python, "-m", "pip", "download", "--quiet", "--pre", "--no-deps", "--no-index", "--find-links", folder,
			"--only-binary=:all:", "--platform", platform, "--dest", target, "hitline")
		require.NoError(t, err, "%s", out)
		taken, err := filepath.Glob(filepath.Join(target, "*"))
		require.NoError(t, err)
		require.Len(t, taken, 1)
		assert.Equal(t, filepath.Base(want), filepath.Base(taken[0]), platform)
	}
}

// wheelInstalled installs a wheel into a virtual environment and runs tests of it there.
func wheelInstalled(t *testing.T, python, version, wheel string) {
	dir := t.TempDir()
	venv, checked := filepath.Join(dir, "venv"), filepath.Join(dir, "checked")
	if out, err := pip(t, python, "-m", "venv", "--without-pip", venv); err != nil {
		lacks(t, "no virtual environment: %v\n%s", err, out)
	}
	out, err := pip(t, python, "-m", "pip", "install", "--quiet", "--no-index", "--ignore-installed", "--prefix", venv, wheel)
	require.NoError(t, err, "%s", out)
	require.NoError(t, copyInto(checked, "tests"))
	environ := []string{
		"HITLINE_TEST_INSTALLED=" + version,
		"HITLINE_TEST_BINARY=" + filepath.Join(venv, "bin", "hitline"),
		"HITLINE_TEST_WHEELS=" + vllmModules(t, python),
	}
	cmd := command(t, filepath.Join(venv, "bin", "python"), "-m", "unittest", "-v", "tests.test_installed")
	cmd.Dir = checked
	cmd.Env = append(cmd.Env, environ...)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Contains(t, string(said), "OK (skipped=1)", "only the test of a wheel without programs is skipped")
}

// wheelFound installs a wheel in each of the ways in which pip puts the program elsewhere. The package that is then
// imported must find it, and see that it is of its own version.
func wheelFound(t *testing.T, python, wheel string) {
	const script = `
import os
from hitline import own_server
os.environ["PATH"] = ""
program = own_server.find_program()
print(program, repr(own_server.version_difference(program)))
`
	for name, flags := range map[string]func(dir string) []string{
		"target": func(dir string) []string { return []string{"--target", dir} },
		"prefix": func(dir string) []string { return []string{"--prefix", dir} },
		"root":   func(dir string) []string { return []string{"--root", dir, "--prefix", "/opt/engine"} },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			args := []string{"-m", "pip", "install", "--quiet", "--no-index", "--ignore-installed"}
			out, err := pip(t, python, append(append(args, flags(dir)...), wheel)...)
			require.NoError(t, err, "%s", out)
			var modules, program string
			require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
				switch {
				case entry.Name() == "own_server.py":
					modules = filepath.Dir(filepath.Dir(path))
				case entry.Name() == "hitline" && entry.Type().IsRegular():
					program = path
				}
				return err
			}))
			cmd := command(t, python, "-c", script)
			cmd.Env = append(cmd.Env, "PYTHONPATH="+modules, "HITLINE_PROGRAM=")
			cmd.Dir = t.TempDir() // which has no package
			said, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", said)
			assert.Equal(t, program+" ''\n", string(said))
		})
	}
}
