// Package story makes hitline's clients behave as engines in which something is wrong, so that its page shows what that looks
// like. Nothing is measured.
//
// No promise: it is internal to this module, and its API may change in any release.
//
//	story.go    the stories
//	engine.go   what an engine asks and saves
package story
