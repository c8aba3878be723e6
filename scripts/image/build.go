package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// architectures are those of the image.
var architectures = []string{"amd64", "arm64"}

const (
	programPath = "/usr/local/bin/hitline"
	configPath  = "/etc/hitline/hitline.yaml"
	// userID is the user and the group that the image runs as. The chart names it.
	userID = 65532

	repositoryURL = "https://github.com/hitline/hitline"
	// refName is the annotation with the version of an image in a layout.
	refName = "org.opencontainers.image.ref.name"
)

// release is what an image is built from.
type release struct {
	version string
	commit  string
	time    time.Time // of the commit; all files and the image have it
	ldflags string    // of the program
}

// readRelease asks the source tree for its version.
func readRelease(ctx context.Context, source string) (release, error) {
	version := func(args ...string) (string, error) {
		text, err := output(ctx, source, "scripts/version", args...)
		return strings.TrimSpace(string(text)), err
	}
	number, err := version()
	if err != nil {
		return release{}, err
	}
	commit, err := version("--commit")
	if err != nil {
		return release{}, err
	}
	ldflags, err := version("--ldflags")
	if err != nil {
		return release{}, err
	}
	unix, err := version("--time")
	if err != nil {
		return release{}, err
	}
	seconds, err := strconv.ParseInt(unix, 10, 64)
	if err != nil {
		return release{}, fmt.Errorf("scripts/version --time printed %q, want seconds since 1970", unix)
	}
	return release{number, commit, time.Unix(seconds, 0).UTC(), ldflags}, nil
}

// output runs a program of the source tree, or one in PATH, and returns what it prints.
func output(ctx context.Context, source, name string, args ...string) ([]byte, error) {
	if strings.Contains(name, "/") {
		name = "./" + name
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = source
	return outputOf(cmd)
}

// outputOf runs a command and returns what it prints.
func outputOf(cmd *exec.Cmd) ([]byte, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w\n%s", strings.Join(cmd.Args, " "), cmd.Dir, err, stderr.String())
	}
	return text, nil
}

// build writes the image of the source tree as a layout into a folder.
func build(ctx context.Context, source, path string, progress io.Writer) error {
	rel, err := readRelease(ctx, source)
	if err != nil {
		return err
	}
	common, err := commonFiles(ctx, source)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		binary, err := compile(ctx, source, arch, rel)
		if err != nil {
			return err
		}
		img, err := newImage(arch, rel, common, []file{{path: programPath, mode: 0o755, data: binary}})
		if err != nil {
			return err
		}
		size, err := img.Size()
		if err != nil {
			return err
		}
		fmt.Fprintf(progress, "linux/%s: program %.1f MiB\n", arch, float64(len(binary))/(1<<20))
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img,
			Descriptor: v1.Descriptor{
				MediaType: types.OCIManifestSchema1, Size: size, Platform: platform(arch),
			},
		})
	}
	annotated, ok := mutate.Annotations(index, labels(rel)).(v1.ImageIndex)
	if !ok {
		return fmt.Errorf("annotations of an index made %T of it", index)
	}
	if err := writeLayout(path, annotated, rel.version); err != nil {
		return err
	}
	digest, err := annotated.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s: version %s, %s\n", path, rel.version, digest)
	return nil
}

// writeLayout replaces what is at path by a layout that holds the index alone. A layout that is
// there is deleted only after the new one is whole.
func writeLayout(path string, index v1.ImageIndex, version string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		if _, err := os.Stat(filepath.Join(path, "oci-layout")); err != nil {
			return fmt.Errorf("%s is there and is no OCI layout: remove it, or name another --output", path)
		}
	}
	temporary, err := os.MkdirTemp(filepath.Dir(path), ".image-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	l, err := layout.Write(temporary, empty.Index)
	if err != nil {
		return err
	}
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: version})); err != nil {
		return err
	}
	if err := setModes(temporary); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// setModes lets everybody read a layout, whatever the umask is.
func setModes(folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}

// commonFiles returns the files that the images of all architectures have.
func commonFiles(ctx context.Context, source string) ([]file, error) {
	configuration, err := os.ReadFile(filepath.Join(source, "deploy", "container.yaml"))
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	notices, err := output(ctx, source, "scripts/notices")
	if err != nil {
		return nil, err
	}
	roots, err := rootCertificates()
	if err != nil {
		return nil, err
	}
	return []file{
		{path: "/etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: roots},
		{path: configPath, mode: 0o644, data: configuration},
		{path: "/usr/share/doc/hitline/LICENSE", mode: 0o644, data: license},
		{path: "/usr/share/doc/hitline/THIRD_PARTY_NOTICES", mode: 0o644, data: notices},
		// A new volume that docker mounts here gets this owner.
		{path: "/var/lib/hitline", mode: os.ModeDir | 0o700, owner: userID},
	}, nil
}

// compile returns the static program for an architecture. The environment of this process has no
// influence on the bytes.
func compile(ctx context.Context, source, arch string, rel release) ([]byte, error) {
	folder, err := os.MkdirTemp("", "hitline-image-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "hitline")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", rel.ldflags, "-o", path, "./cmd/hitline")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch,
		"GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off")
	if _, err := outputOf(cmd); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// platform returns the platform of an architecture as an index names it.
func platform(arch string) *v1.Platform {
	p := &v1.Platform{OS: "linux", Architecture: arch}
	if arch == "arm64" {
		p.Variant = "v8"
	}
	return p
}

// labels returns what the image says of itself.
func labels(rel release) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":         "hitline",
		prefix + "description":   "Prefix-cache lookups for LLM serving",
		prefix + "url":           repositoryURL,
		prefix + "source":        repositoryURL,
		prefix + "documentation": repositoryURL + "/blob/main/docs/install.md#as-an-image",
		prefix + "vendor":        "hitline",
		prefix + "licenses":      "Apache-2.0",
		prefix + "version":       rel.version,
		prefix + "revision":      rel.commit,
		prefix + "created":       rel.time.Format(time.RFC3339),
	}
}

// newImage returns the image of an architecture. Each list of files is a layer.
func newImage(arch string, rel release, layers ...[]file) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: rel.time}
	for _, files := range layers {
		layer, err := newLayer(files, rel.time)
		if err != nil {
			return nil, err
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:     layer,
			MediaType: types.OCILayer,
			History:   v1.History{Created: created, CreatedBy: "hitline scripts/image", Comment: files[0].path},
		})
		if err != nil {
			return nil, err
		}
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	p := platform(arch)
	cfg.OS, cfg.Architecture, cfg.Variant, cfg.Created = p.OS, p.Architecture, p.Variant, created
	user := strconv.Itoa(userID)
	cfg.Config = v1.Config{
		User:         user + ":" + user,
		Env:          []string{"PATH=" + filepath.Dir(programPath)},
		Entrypoint:   []string{programPath},
		Cmd:          []string{"serve", "--config", configPath},
		WorkingDir:   "/",
		ExposedPorts: map[string]struct{}{"7557/tcp": {}, "9557/tcp": {}},
		StopSignal:   "SIGTERM",
		Healthcheck: &v1.HealthConfig{
			Test:     []string{"CMD", programPath, "ping", "--timeout", "2s"},
			Interval: 10 * time.Second, Timeout: 3 * time.Second, StartPeriod: 2 * time.Second,
		},
		Labels: labels(rel),
	}
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(img, labels(rel)).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("annotations of an image made %T of it", img)
	}
	return annotated, nil
}
