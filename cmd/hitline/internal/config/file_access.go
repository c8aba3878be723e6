package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// exposuresOf warns of what everybody may do with the file that the value at path names: change it, replace it in its
// folder, or read a secret. Links are followed. Kubernetes' Secrets have no warning: all may read them, in a file system
// that nobody else has.
func (c *Config) exposuresOf(path, file string, secret bool) []string {
	var warnings []string
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	info, err := os.Stat(file)
	if isReadOnlyMemory(file) {
		return nil
	}
	if err == nil {
		for _, exposure := range exposures(info.Mode(), secret) {
			warnings = append(warnings, c.wrong(path, "%s %s", file, exposure).Error())
		}
	}
	folder := filepath.Dir(file)
	if info, err = os.Stat(folder); err == nil && info.Mode()&fs.ModeSticky == 0 { // otherwise nobody replaces others' files
		for _, exposure := range exposures(info.Mode(), false) {
			warnings = append(warnings, c.wrong(path, "%s %s", folder, exposure).Error())
		}
	}
	return warnings
}

// exposures returns what everybody may do with a file or a folder that they should not.
func exposures(mode fs.FileMode, secret bool) (list []string) {
	if mode&0o002 != 0 {
		list = append(list, fmt.Sprintf("may be changed by everybody (mode %04o): chmod o-w", mode.Perm()))
	}
	if secret && mode&0o004 != 0 {
		list = append(list, fmt.Sprintf("has a secret, and may be read by everybody (mode %04o): chmod o-r", mode.Perm()))
	}
	return list
}
