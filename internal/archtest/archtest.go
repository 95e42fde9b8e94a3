// Package archtest holds the tests that keep the tree in the shape docs/architecture.md draws: who may
// import whom, which package may call which C library, and what a package must say about itself.
package archtest
