// Package attack measures what a client of a hitline server waits, and how much memory the server takes,
// while another client attacks the server. It has only tests, behind the build tag hitline_attack, which
// `make attack` runs.
//
// Each row attacks a hitline that was built from this tree, on loopback, from a process of its own.
// Meanwhile an innocent client makes lookups at a constant rate and checks every answer. The control
// of a row is the same attack on a second server on the same cores, while the innocent asks the first
// one. It shows what the attack costs by its use of the CPU alone. The innocent may wait at most 50 ms
// longer than in the control. In some rows that holds for bystanders, too: a probe of /health, a
// handshake of TLS and an event of an engine.
//
// The rows held-… flood a server with one kind of request, over memory or a store, from up to 4,000
// connections that read nothing. What the server takes is bounded by limits.max_memory, and a client that
// asks one lookup at a time is answered.
//
// Layout: attack_test.go runs the rows, rows_test.go and rows_*_test.go define them, memory_test.go has
// those of memory, attacker_test.go is the attacking process, innocent_test.go the innocent client,
// bystander_test.go the bystanders, server_test.go a server that was started, wire_test.go the bytes.
package attack
