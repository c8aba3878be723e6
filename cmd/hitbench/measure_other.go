//go:build !linux

package main

import "github.com/spf13/cobra"

// measureCommands are those that are there on Linux only.
func (a *app) measureCommands() []*cobra.Command { return nil }
