package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// imageFor returns the image of an architecture in a layout.
func imageFor(path, arch string) (v1.Image, error) {
	index, _, err := readLayout(path)
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range list.Manifests {
		if m.Platform != nil && m.Platform.OS == "linux" && m.Platform.Architecture == arch {
			return index.Image(m.Digest)
		}
	}
	return nil, fmt.Errorf("%s has no image for linux/%s: it has %s", path, arch, strings.Join(architectures, ", "))
}

// unpack writes the root file system of an image into a new folder. Run by root it keeps the owners.
func unpack(img v1.Image, folder string) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	content := mutate.Extract(img)
	defer content.Close()
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := unpackEntry(root, header, r); err != nil {
			return fmt.Errorf("unpack %s: %w", header.Name, err)
		}
	}
}

// unpackEntry writes one file or folder.
func unpackEntry(root *os.Root, header *tar.Header, data io.Reader) error {
	name, mode := filepath.Clean(header.Name), fs.FileMode(header.Mode).Perm()
	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, mode); err != nil {
			return err
		}
	case tar.TypeReg:
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, data); err != nil {
			f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("it has type %q, want a file or a folder", header.Typeflag)
	}
	if os.Geteuid() == 0 {
		if err := root.Chown(name, header.Uid, header.Gid); err != nil {
			return err
		}
	}
	return root.Chmod(name, mode) // whatever the umask is
}
