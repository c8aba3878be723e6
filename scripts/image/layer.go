package main

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is a file or folder of a layer.
type file struct {
	path  string // absolute
	mode  fs.FileMode
	owner int // user and group
	data  []byte
}

// newLayer returns a layer of the files and of the folders above them, all with one time. The
// order of the files has no influence on its bytes.
func newLayer(files []file, modified time.Time) (v1.Layer, error) {
	entries := map[string]file{}
	for _, f := range files {
		for folder := path.Dir(f.path); folder != "/"; folder = path.Dir(folder) {
			if _, ok := entries[folder]; !ok {
				entries[folder] = file{path: folder, mode: fs.ModeDir | 0o755}
			}
		}
		entries[f.path] = f
	}
	var paths []string
	for p := range entries {
		paths = append(paths, p)
	}
	slices.Sort(paths) // a folder comes before what is in it

	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, p := range paths {
		f := entries[p]
		header := &tar.Header{
			Name: strings.TrimPrefix(f.path, "/"), Mode: int64(f.mode.Perm()), Uid: f.owner, Gid: f.owner,
			Size: int64(len(f.data)), ModTime: modified, Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		if f.mode.IsDir() {
			header.Typeflag = tar.TypeDir
			header.Name += "/"
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}
