// Package examples has the tests that run every command line that users are shown: the examples in the help of both
// programs, and the command lines of README.md, docs and the other pages.
//
// A page is read as Markdown: indented blocks, fences of shell, and command lines in back quotes. Each block is one
// script of bash, each line in back quotes one of its own. It runs in a folder with the files that the pages name, with
// both programs on PATH and a server, or an engine's events, behind the addresses that the pages give. table_test.go
// says what is replaced, which flags shorten a measurement, and what is not run and why. Commands that are not run have
// their flags parsed, their make targets, benchmarks and packages looked up.
package examples
