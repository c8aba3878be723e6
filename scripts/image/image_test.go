package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// temporary is a folder for what all tests share.
var temporary string

func TestMain(m *testing.M) {
	if runInside() {
		return
	}
	folder, err := os.MkdirTemp("", "hitline-image-test-*")
	if err != nil {
		log.Fatal(err)
	}
	temporary = folder
	status := m.Run()
	os.RemoveAll(folder)
	os.Exit(status)
}

// builtLayout builds the image once. HITLINE_TEST_IMAGE names one that is built already.
var builtLayout = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("HITLINE_TEST_IMAGE"); path != "" {
		return path, nil
	}
	path := filepath.Join(temporary, "image")
	return path, build(context.Background(), source, path, os.Stderr)
})

// layoutUnderTest returns the path of the image under test.
func layoutUnderTest(t *testing.T) string {
	t.Helper()
	path, err := builtLayout()
	require.NoError(t, err)
	return path
}

// imageUnderTest returns the image of an architecture.
func imageUnderTest(t *testing.T, arch string) v1.Image {
	t.Helper()
	img, err := imageFor(layoutUnderTest(t), arch)
	require.NoError(t, err)
	return img
}

// configOf returns what a container of the image is started with.
func configOf(t *testing.T, img v1.Image) *v1.ConfigFile {
	t.Helper()
	cfg, err := img.ConfigFile()
	require.NoError(t, err)
	return cfg
}

// content returns the entries of an image's file system.
func content(t *testing.T, img v1.Image) (headers map[string]*tar.Header, data map[string][]byte) {
	t.Helper()
	headers, data = map[string]*tar.Header{}, map[string][]byte{}
	stream := mutate.Extract(img)
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, data
		}
		require.NoError(t, err)
		path := "/" + strings.TrimSuffix(h.Name, "/")
		headers[path] = h
		data[path], err = io.ReadAll(r)
		require.NoError(t, err)
	}
}

func TestLayoutIsValid(t *testing.T) {
	index, version, err := readLayout(layoutUnderTest(t))
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))
	list, err := index.IndexManifest()
	require.NoError(t, err)
	var platforms []string
	for _, m := range list.Manifests {
		platforms = append(platforms, m.Platform.String())
	}
	assert.Equal(t, []string{"linux/amd64", "linux/arm64/v8"}, platforms)

	rel, err := readRelease(t.Context(), source)
	require.NoError(t, err)
	assert.Equal(t, rel.version, version)
	assert.Equal(t, labels(rel), list.Annotations)
	for _, arch := range architectures {
		cfg := configOf(t, imageUnderTest(t, arch))
		assert.Equal(t, arch, cfg.Architecture)
		assert.Equal(t, labels(rel), cfg.Config.Labels)
		assert.True(t, rel.time.Equal(cfg.Created.Time), "%v, want %v", cfg.Created, rel.time)
	}
}

// The same commit makes the same bytes.
func TestBuildsAreEqual(t *testing.T) {
	again := filepath.Join(t.TempDir(), "again")
	require.NoError(t, build(t.Context(), source, again, io.Discard))
	first := os.DirFS(layoutUnderTest(t))
	var names []string
	require.NoError(t, fs.WalkDir(os.DirFS(again), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		names = append(names, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		assert.EqualValues(t, 0o644, info.Mode(), path)
		want, err := fs.ReadFile(first, path)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(again, path))
		assert.True(t, bytes.Equal(want, got), path)
		return err
	}))
	assert.Contains(t, names, "index.json")
	assert.Greater(t, len(names), 6)
}

func TestContent(t *testing.T) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, arch := range architectures {
		headers, data := content(t, imageUnderTest(t, arch))
		var paths []string
		for path, h := range headers {
			if h.Typeflag != tar.TypeDir {
				paths = append(paths, path)
			}
			if path != "/var/lib/hitline" {
				assert.Zero(t, h.Uid+h.Gid, path)
				assert.Zero(t, h.Mode&0o022, path)
			}
		}
		slices.Sort(paths)
		assert.Equal(t, []string{
			"/etc/hitline/hitline.yaml", "/etc/ssl/certs/ca-certificates.crt", "/usr/local/bin/hitline",
			"/usr/share/doc/hitline/LICENSE", "/usr/share/doc/hitline/THIRD_PARTY_NOTICES",
		}, paths)
		state := headers["/var/lib/hitline"]
		require.NotNil(t, state)
		assert.Equal(t, []int{userID, userID, 0o700}, []int{state.Uid, state.Gid, int(state.Mode)})

		binary, err := elf.NewFile(bytes.NewReader(data[programPath]))
		require.NoError(t, err)
		assert.Equal(t, machines[arch], binary.Machine)
		for _, p := range binary.Progs {
			assert.NotEqual(t, elf.PT_INTERP, p.Type, "the program is not static")
		}
		for path, origin := range map[string]string{configPath: "deploy/container.yaml", "/usr/share/doc/hitline/LICENSE": "LICENSE"} {
			want, err := os.ReadFile(filepath.Join(source, origin))
			require.NoError(t, err)
			assert.Equal(t, string(want), string(data[path]))
		}
		assert.Contains(t, string(data["/usr/share/doc/hitline/THIRD_PARTY_NOTICES"]), "github.com/panjf2000/gnet/v2")

		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(data["/etc/ssl/certs/ca-certificates.crt"]))
		wanted := regexp.MustCompile(`CN=(ISRG Root X1|DigiCert Global Root G2|Amazon Root CA 1),`)
		assert.Len(t, wanted.FindAll(data["/etc/ssl/certs/ca-certificates.crt"], -1), 3)
	}
}

// The Dockerfile is for those who build an image of their own: it starts as this one does.
func TestStartsAsTheDockerfile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(source, "deploy", "Dockerfile"))
	require.NoError(t, err)
	instruction := func(pattern string) string {
		m := regexp.MustCompile(`(?m)^` + pattern + `$`).FindSubmatch(text)
		require.NotNil(t, m, pattern)
		return string(m[1])
	}
	list := func(pattern string) (words []string) {
		require.NoError(t, json.Unmarshal([]byte(instruction(pattern)), &words))
		return words
	}
	cfg := configOf(t, imageUnderTest(t, "amd64")).Config
	assert.Equal(t, instruction(`USER (.*)`), cfg.User)
	assert.Equal(t, list(`ENTRYPOINT (.*)`), cfg.Entrypoint)
	assert.Equal(t, list(`CMD (.*)`), cfg.Cmd)
	assert.Equal(t, instruction(`STOPSIGNAL (.*)`), cfg.StopSignal)
	assert.Equal(t, append([]string{"CMD"}, list(`HEALTHCHECK .* CMD (.*)`)...), cfg.Healthcheck.Test)
	assert.Equal(t, instruction(`HEALTHCHECK --interval=(\S+) .*`), cfg.Healthcheck.Interval.String())
	assert.Equal(t, instruction(`HEALTHCHECK .* --timeout=(\S+) .*`), cfg.Healthcheck.Timeout.String())
	assert.Equal(t, instruction(`HEALTHCHECK .* --start-period=(\S+) .*`), cfg.Healthcheck.StartPeriod.String())
	for port := range strings.FieldsSeq(instruction(`EXPOSE (.*)`)) {
		assert.Contains(t, cfg.ExposedPorts, port+"/tcp")
	}
	for _, path := range []string{"/etc/ssl/certs/ca-certificates.crt", "/var/lib/hitline"} {
		instruction(`COPY --from=build .*\S+ (` + path + `)`)
	}
}

func TestBuildKeepsWhatIsNoLayout(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "mine"), nil, 0o600))
	assert.ErrorContains(t, writeLayout(folder, empty.Index, "1.0.0"), "no OCI layout")
	assert.FileExists(t, filepath.Join(folder, "mine"))
	_, err := imageFor(folder, "amd64")
	assert.ErrorContains(t, err, "make image")
}

// smallLayout writes a layout with an image of one file.
func smallLayout(t *testing.T, version, text string) (path string, digest v1.Hash) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "layout")
	rel := release{version: version, commit: "c0ffee", time: time.Unix(1, 0)}
	img, err := newImage("amd64", rel, []file{{path: "/text", mode: 0o644, data: []byte(text)}})
	require.NoError(t, err)
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{Add: img})
	require.NoError(t, writeLayout(path, index, version))
	digest, err = index.Digest()
	require.NoError(t, err)
	return path, digest
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/hitline/hitline"
	repo, err := name.NewRepository(repository)
	require.NoError(t, err)
	tags := func() map[string]v1.Hash {
		list, err := remote.List(repo)
		require.NoError(t, err)
		digests := map[string]v1.Hash{}
		for _, tag := range list {
			d, err := remote.Head(repo.Tag(tag))
			require.NoError(t, err)
			digests[tag] = d.Digest
		}
		return digests
	}

	layouts, digests := map[string]string{}, map[string]v1.Hash{}
	for _, version := range []string{"0.1.0", "0.1.1", "0.2.0", "0.3.0-rc.1", "0.3.0-dev.7.gc0ffee"} {
		layouts[version], digests[version] = smallLayout(t, version, "of "+version)
	}
	var stdout, stderr bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"push", "--repository", repository, layouts["0.1.0"]}, &stdout, &stderr), stderr.String())
	assert.Equal(t, digests["0.1.0"].String()+"\n", stdout.String())
	assert.Equal(t, map[string]v1.Hash{"0.1.0": digests["0.1.0"], "0.1": digests["0.1.0"], "latest": digests["0.1.0"]}, tags())
	img, err := remote.Image(repo.Tag("latest"))
	require.NoError(t, err)
	_, data := content(t, img)
	assert.Equal(t, "of 0.1.0", string(data["/text"]))

	_, err = push(t.Context(), layouts["0.2.0"], repository, io.Discard)
	require.NoError(t, err)
	// A correction of an older minor version is not the latest.
	_, err = push(t.Context(), layouts["0.1.1"], repository, io.Discard)
	require.NoError(t, err)
	want := map[string]v1.Hash{
		"0.1.0": digests["0.1.0"], "0.1.1": digests["0.1.1"], "0.1": digests["0.1.1"],
		"0.2.0": digests["0.2.0"], "0.2": digests["0.2.0"], "latest": digests["0.2.0"],
	}
	assert.Equal(t, want, tags())

	// Once more, as after a failure in the middle: nothing changes.
	_, err = push(t.Context(), layouts["0.1.0"], repository, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, want, tags())

	// A version does not move, and what is no release is refused.
	other, _ := smallLayout(t, "0.2.0", "other")
	_, err = push(t.Context(), other, repository, io.Discard)
	assert.ErrorContains(t, err, "other content")
	_, err = push(t.Context(), layouts["0.3.0-dev.7.gc0ffee"], repository, io.Discard)
	assert.ErrorContains(t, err, "no release")
	assert.Equal(t, want, tags())

	// A candidate has its own tag alone.
	_, err = push(t.Context(), layouts["0.3.0-rc.1"], repository, io.Discard)
	require.NoError(t, err)
	want["0.3.0-rc.1"] = digests["0.3.0-rc.1"]
	assert.Equal(t, want, tags())
}

// The manifests for Kubernetes name the image by its minor version: that of the release, or of the
// one that comes next.
func TestKubernetesNamesTheImage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(source, "deploy", "kubernetes.yaml"))
	require.NoError(t, err)
	named := regexp.MustCompile(`(?m)^ *image: ghcr\.io/hitline/hitline:(\d+)\.(\d+)( |$)`).FindSubmatch(text)
	require.NotNil(t, named, "deploy/kubernetes.yaml names another image")
	rel, err := readRelease(t.Context(), source)
	require.NoError(t, err)
	assert.Contains(t, minorVersions(t, rel.version), string(named[1])+"."+string(named[2]))
}

// minorVersions returns the minor version of a release; of another build also those that may come.
func minorVersions(t *testing.T, version string) []string {
	t.Helper()
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d.", &major, &minor)
	require.NoError(t, err)
	versions := []string{fmt.Sprintf("%d.%d", major, minor)}
	if !isRelease(version) {
		versions = append(versions, fmt.Sprintf("%d.%d", major, minor+1), fmt.Sprintf("%d.0", major+1))
	}
	return versions
}

func TestUsage(t *testing.T) {
	for line := range strings.Lines(usage) {
		assert.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 80, line)
	}
	for _, args := range [][]string{nil, {"pull"}, {"push"}, {"push", "one", "two"}, {"build", "--colour"}, {"build", "more"}} {
		var stdout, stderr bytes.Buffer
		assert.ErrorIs(t, run(t.Context(), args, &stdout, &stderr), errUsage, args)
		assert.Contains(t, stderr.String(), "usage: image build", args)
		assert.Empty(t, stdout.String(), args)
	}
}
