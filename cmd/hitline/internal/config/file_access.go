package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// accessOf is who may do what with a file or a folder.
type accessOf struct {
	uid, gid uint32
	mode     fs.FileMode
}

// identity is a user with its groups.
type identity struct {
	uid    uint32
	groups []uint32 // root's is always taken for one
}

func ownIdentity() identity {
	id := identity{uid: uint32(os.Geteuid()), groups: []uint32{0, uint32(os.Getegid())}}
	more, _ := os.Getgroups() // without them there may be a warning too many
	for _, gid := range more {
		id.groups = append(id.groups, uint32(gid))
	}
	return id
}

// exposures returns what others than the user and root may do that they should not. Only of a secret may they not read.
func (a accessOf) exposures(us identity, secret bool) []string {
	var list []string
	if a.uid != 0 && a.uid != us.uid {
		list = append(list, fmt.Sprintf("belongs to user %d, who may change it; give it to root or to the server's user", a.uid))
	}
	sticky := a.mode.IsDir() && a.mode&fs.ModeSticky != 0 // nobody may replace the files of others
	switch {
	case sticky:
	case a.mode&0o002 != 0:
		list = append(list, fmt.Sprintf("may be changed by everybody (mode %04o): chmod o-w", a.mode.Perm()))
	case a.mode&0o020 != 0 && !slices.Contains(us.groups, a.gid):
		list = append(list, fmt.Sprintf("may be changed by group %d (mode %04o): chmod g-w", a.gid, a.mode.Perm()))
	}
	if secret && a.mode&0o004 != 0 {
		list = append(list, fmt.Sprintf("has a secret, and may be read by everybody (mode %04o): chmod o-r", a.mode.Perm()))
	}
	return list
}

// fileExposures returns what others than this process' user and root may do with a file and its folder that they should
// not: a line for each. What it cannot look at has none. Links are followed; the folder of the link counts, too.
// Kubernetes' Secrets have none: they are files of root that all may read, in a file system that nobody else has.
func fileExposures(path string, secret bool) []string {
	us := ownIdentity()
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		target = path
	}
	if isReadOnlyMemory(target) {
		return nil
	}
	var list []string
	add := func(name string, secret bool) {
		if a, err := lookAtAccess(name); err == nil {
			for _, exposure := range a.exposures(us, secret) {
				list = append(list, name+" "+exposure)
			}
		}
	}
	add(target, secret)
	folders := []string{filepath.Dir(path), filepath.Dir(target)}
	for i, folder := range folders {
		if abs, err := filepath.Abs(folder); err == nil {
			folders[i] = abs
		}
	}
	for _, folder := range slices.Compact(folders) {
		add(folder, false)
	}
	return list
}

// lookAtAccess returns who may do what with a file. It follows links.
func lookAtAccess(path string) (accessOf, error) {
	info, err := os.Stat(path)
	if err != nil {
		return accessOf{}, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return accessOf{}, errors.ErrUnsupported
	}
	return accessOf{owner.Uid, owner.Gid, info.Mode()}, nil
}

// exposuresOf returns the exposures of a file, as warnings of the value at path that names it.
func (c *Config) exposuresOf(path, file string, secret bool) []string {
	var warnings []string
	for _, exposure := range fileExposures(file, secret) {
		warnings = append(warnings, c.wrong(path, "%s", exposure).Error())
	}
	return warnings
}
