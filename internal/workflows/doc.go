// Package workflows tests the files in .github against the repository: the commands that workflows
// call exist, actions are pinned, every job has a timeout, and only the jobs that a test lists may
// write.
package workflows
