// Package docs holds the guides of this folder, for the program that serves them at /docs/guides.
package docs

import "embed"

// Files holds the guides and the example program of the backup format.
//
//go:embed *.md backup-reader.py
var Files embed.FS
