package main

// httpConns returns how many connections an HTTP listener may have with a limit of open files: no more than an eighth
// of it, so that they do not keep out the clients of listen.
func httpConns(most int, openFiles uint64) int {
	return int(max(1, min(uint64(most), openFiles/8)))
}
