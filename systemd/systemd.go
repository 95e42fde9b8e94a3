// Package systemd holds the units, users and folders of an installed box, and the tests that keep the units valid
// and confined. The files are installed by the Debian package; nothing here runs.
package systemd
