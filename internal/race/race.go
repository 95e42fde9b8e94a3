//go:build race

// Package race tells whether the race detector is in the build. Its sync.Pool drops at random what it is given, so
// that tests which count allocations mean nothing there; they run once more without it.
package race

// Enabled is true in builds with the race detector.
const Enabled = true
