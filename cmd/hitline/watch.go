package main

import (
	"crypto/sha256"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/hitline/hitline/internal/regularfile"
)

// pollInterval is how often files are looked at. A file that has changed is read when it is the
// same at two looks: so one that is still being written is not taken.
const pollInterval = time.Second

// fileVersion is what a file was when it was looked at. Links are followed: Kubernetes changes a
// file by another link.
type fileVersion struct {
	info   os.FileInfo // nil if it could not be looked at
	digest [sha256.Size]byte
}

// isAt reports whether the file still is as at the look info, without reading it.
func (v fileVersion) isAt(info os.FileInfo) bool {
	if v.info == nil || info == nil {
		return v.info == nil && info == nil
	}
	return os.SameFile(v.info, info) && v.info.Size() == info.Size() && v.info.ModTime().Equal(info.ModTime())
}

// look returns what a file is now, nil if that cannot be told.
func look(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// fileVersions are some files by their paths.
type fileVersions map[string]fileVersion

// readVersions looks at files and reads them. A file that cannot be read has a zero digest; whoever
// reads it for its text learns why.
func readVersions(paths []string) fileVersions {
	versions := fileVersions{}
	for _, path := range paths {
		v := fileVersion{info: look(path)}
		if text, err := regularfile.Read(path); err == nil {
			v.digest = sha256.Sum256(text)
		}
		versions[path] = v
	}
	return versions
}

// areCurrent reports whether no file has changed since it was read.
func (f fileVersions) areCurrent() bool {
	for path, v := range f {
		if !v.isAt(look(path)) {
			return false
		}
	}
	return true
}

// fileWatch finds the files that have changed since they were taken. It is a value: no method changes its maps.
type fileWatch struct {
	taken fileVersions
	seen  map[string]os.FileInfo // at the last poll
}

// watchFiles returns a watch of files, as they were read.
func watchFiles(versions fileVersions) fileWatch { return fileWatch{taken: versions} }

// differing returns the paths of the watched files whose text is another in versions.
func (w fileWatch) differing(versions fileVersions) []string {
	var paths []string
	for path, v := range versions {
		if before, watched := w.taken[path]; watched && before.digest != v.digest {
			paths = append(paths, path)
		}
	}
	return paths
}

// poll returns the watch after a look at the files, the paths of those that are not as they were taken, and are as at
// the last poll, and the versions of all files. It returns no paths while a file is changing.
func (w fileWatch) poll() (next fileWatch, changed []string, versions fileVersions) {
	changing := false
	next = fileWatch{taken: maps.Clone(w.taken), seen: map[string]os.FileInfo{}}
	for _, path := range slices.Sorted(maps.Keys(w.taken)) {
		info := look(path)
		before, polled := w.seen[path]
		next.seen[path] = info
		switch {
		case w.taken[path].isAt(info):
		case polled && (fileVersion{info: before}).isAt(info):
			changed = append(changed, path)
		default:
			changing = true
		}
	}
	if changing || changed == nil {
		return next, nil, nil
	}
	versions = readVersions(slices.Collect(maps.Keys(w.taken)))
	changed = slices.DeleteFunc(changed, func(path string) bool {
		v := versions[path]
		if v.digest == [sha256.Size]byte{} || v.digest != w.taken[path].digest {
			return false
		}
		next.taken[path] = v // touched, or replaced by the same text
		return true
	})
	return next, changed, versions
}
