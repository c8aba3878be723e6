// Package browsertest tests the status page in Chromium, on the program hitline. It is a module of
// its own, so that users of hitline do not get the dependencies of its tests.
//
// # Layout
//
//	chromium_test.go  the browser: one process for all tests
//	tab_test.go       a page in it, and what must not happen there: errors, requests to elsewhere
//	problems_test.go  such things are noticed, on pages that are broken on purpose
//	server_test.go    hitline in a process of its own, its clients and their prompts
//	busy_test.go      one with several pools, clients and refusals
//	past_test.go      its page with an hour of lookups that it has not answered
//	page_test.go      the page follows the server, explains lookups, survives a restart
//	text_test.go      texts of peers run nothing
//	token_test.go     what an administrator's token shows
//	layout_test.go    narrow windows, light and dark
//	keyboard_test.go  keyboard and screen readers
//	pictures_test.go  the pictures of the docs
package browsertest
