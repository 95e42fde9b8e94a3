// Package ingestv1 is the wire contract between the ingest sidecar and its clients, generated from
// ingest.proto, which explains it.
package ingestv1
