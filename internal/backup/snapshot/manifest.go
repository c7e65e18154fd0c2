// Package snapshot owns what a backup is made of: it reads a site's storage and databases as they are
// at one moment into a repository, and writes them from there to where they come back. It knows no
// table: package backup says when, and what becomes of it.
package snapshot

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/backup/repository"
	"slipway/internal/deploy/deployment"
	"slipway/internal/tenant/site"
)

// ID names a backup: "bkp_" and 26 characters.
type ID = id.Backup

// Manifest lists what a backup holds and where it lies. It has secrets.
type Manifest struct {
	Version  int              `json:"version"`
	ID       ID               `json:"id"`
	Site     site.ID          `json:"site"`
	At       time.Time        `json:"at"`
	Includes []string         `json:"includes"`
	Config   *site.Export     `json:"config,omitempty"`
	Extra    json.RawMessage  `json:"extra,omitempty"` // see WordPress.Export
	Live     *deployment.Live `json:"live,omitempty"`
	Places   map[string]int64 `json:"databases,omitempty"` // of databases, by name
	Folders  []string         `json:"folders,omitempty"`   // of storage

	repository.Contents
}

// The folders of a manifest's paths: blobs of the release and of the bundle by digest,
// files of storage folders, and dumps of databases.
const (
	InBlobs    = "blobs/"
	InStorage  = "storage/"
	InDatabase = "database/"
)

// Under yields the files below one of the folders, with their paths there.
func (m *Manifest) Under(folder string) (list []repository.File) {
	for _, f := range m.Files {
		if rest, ok := strings.CutPrefix(f.Path, folder); ok {
			f.Path = rest
			list = append(list, f)
		}
	}
	return list
}

// FolderOf returns the storage folder that a path below inStorage belongs to; empty: it is
// not known.
func (m *Manifest) FolderOf(p string) (name string) {
	for _, f := range m.Folders {
		if strings.HasPrefix(p, f+"/") && len(f) > len(name) {
			name = f
		}
	}
	return name
}

// Encode returns a manifest as it is stored.
func (m *Manifest) Encode() ([]byte, error) {
	head := *m
	head.Version, head.Contents = repository.Version, repository.Contents{}
	return repository.Encode(head, &m.Contents)
}

// Load reads a manifest from a repository.
func Load(ctx context.Context, r *repository.Repository, name string) (*Manifest, error) {
	m := &Manifest{}
	c, err := r.Load(ctx, name, m)
	if err != nil {
		return nil, err
	}
	m.Contents = *c
	return m, nil
}
